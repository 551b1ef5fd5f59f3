"""What PD decides, and why: pure functions, for a cluster as pd-ctl prints it and for a simulated one.

Rules, scores, filters, checkers and schedulers (design "TiDB Scheduling"), readers of pd-ctl's answers, surveys and
forecasts. Nothing here runs a cluster: :mod:`ticdc_lab.simulate.pd` does, with these functions, in virtual time.
"""
