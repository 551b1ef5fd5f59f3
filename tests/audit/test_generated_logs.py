"""Generated topics: a correct one gives no error, one with a planted fault at least one."""

from __future__ import annotations

import pytest
from audit_tables import audit_table
from generated_topics import FAULTS, topic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_logs import table_of

SETTINGS = settings(
    max_examples=20,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def errors(events):
    """Names of guarantees with an error."""
    found = audit_table(table_of(events), protocol="open-protocol").to_pylist()
    return {f["guarantee"] for f in found if f["severity"] == "error"}


@SETTINGS
@given(seed=st.integers(0, 2**32))
def test_a_correct_topic_gives_no_error(seed):
    """Keys cross, tables interleave, crashes repeat: none of it is an error."""
    assert errors(topic(seed).events()) == set()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda f: f.__name__)
@settings(SETTINGS, max_examples=10)
@given(seed=st.integers(0, 2**32))
def test_a_planted_fault_gives_an_error(fault, seed):
    """The guarantee that the fault breaks is among the errors."""
    assert FAULTS[fault] in errors(fault(topic(seed)))


@settings(SETTINGS, max_examples=60)
@given(seed=st.integers(0, 2**32), fault=st.sampled_from([None, *FAULTS]))
def test_faults_are_found_in_many_topics(seed, fault):
    """And nothing without one."""
    made = topic(seed)
    found = errors(fault(made) if fault else made.events())
    assert FAULTS[fault] in found if fault else not found
