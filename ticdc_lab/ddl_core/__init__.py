"""The machines of DDL as a Service, which the model and the running service share (docs/ddl-service.md).

Workers, owners and tidb-servers, the store that they share with its keys and records, and how the states of a fleet and
of its jobs are read. :mod:`ticdc_lab.simulate.ddl_service` drives them in virtual time, :mod:`ticdc_lab.ddl_service`
over a real store.
"""
