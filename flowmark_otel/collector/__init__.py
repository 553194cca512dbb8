"""The collector: validates, folds and delivers for every service (contract, section 9).

``config`` reads the file and makes a ``Plan`` of it; ``run`` builds the nodes of a plan. Every node
is an ``Element`` behind the failure policy of its options; what flows between them is a
``Payload``, and what comes back is an ``Outcome``, of which the answer to the sender is made.
"""
