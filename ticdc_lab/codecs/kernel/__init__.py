"""Vectorised decoding kernels: bytes of many messages to Arrow arrays, compiled once by numba.

``faults`` names what can be wrong; ``scan`` walks JSON, and ``members`` its objects by a description of their names;
``text`` and ``typed_values`` write values; ``xxh64`` is Spark's hash; ``state`` holds what was decoded, and ``columns``
makes Arrow of it. ``batch`` runs the two formats whose kernels name each fault, ``in_part`` those beside a codec.
"""
