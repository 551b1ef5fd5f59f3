"""What PD decides, and why, as pure functions; what a real PD says of its cluster, read; what it will do, forecast.

Rules, scores, filters, checkers and schedulers (design "TiDB Scheduling"), the answers of pd-ctl, and surveys and
forecasts of a cluster that they describe. Nothing here runs a cluster: :mod:`ticdc_lab.simulate.pd` does, with these
functions, in virtual time.
"""
