"""A latency and bandwidth model of communication: fitted to sweeps, used to predict and to explain. Pure.

In: configurations with their repeats. Out: fits of collectives with their errors,
predicted training steps at other numbers of ranks, and explanations as keys with numbers, which a report puts
into words. A prediction is a type of its own, never a configuration: nothing in it was measured.

Read `costs` first: what a message costs, and what each algorithm sends. `sweep` and `training` pick the
measurements, `noise` says how far they scatter, `problem` and `fit` find alpha and beta, `step` says what a
training step is made of, `predict` puts both together (`choice` picks the fit that suits a training), and
`refusal` says where a prediction ends. `dominant` and `versus` explain, `warnings` says what a fit or a
prediction cannot tell.
"""
