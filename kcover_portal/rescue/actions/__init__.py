"""One module for each step: ``run(context) -> Outcome``. To add one, write the module and name it in ``registry``.

A step may run any number of times: it reads the cluster first and does only what is still missing. What it must
remember between runs goes into its progress before the call that it is about.
"""
