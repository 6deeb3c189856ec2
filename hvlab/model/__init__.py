"""What communication costs, fitted to measurements, and what it means for training at other sizes.

Latency and bandwidth models of the collectives (`costs`), their fit to a sweep (`sweep`, `fit`), training
steps (`training`, `step`) predicted from them (`predict`), and explanations drawn from figures (`dominant`,
`versus`). All pure. A prediction is a type of its own: it is never a configuration, and nothing here was
measured at the numbers of ranks it names.
"""
