"""The virtual lab: an inventory's virtual hosts as systemd-nspawn containers on this machine.

In: the inventory's ``Lab``. Out: nodes that run and accept ssh, as bare machines would. Read ``plan`` first
(a ``LabPlan`` of ``Node`` objects), then ``lab``: up, down, status, ssh. ``boot`` starts the nodes, each one
(``node``) an overlay over a base image (``image``; ``redhat`` makes it one of the Red Hat family) on a bridge
(``network``), with this machine's package sources (``packages``). ``reality`` reads the
lab's state from /proc.
"""
