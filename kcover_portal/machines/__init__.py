"""Machine drivers: the management controllers (BMCs) of nodes, their credentials, and the calls to them.

Belongs here: rows of drivers, which driver a node has, the protocols of controllers. Never here: when a machine may be
switched off (``rescue``), and which settings exist (``kcover.machines.machine_drivers``).
"""
