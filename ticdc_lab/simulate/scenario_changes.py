"""Other values in a scenario file than those it has, for comparisons and sweeps."""

from __future__ import annotations

import yaml

from ticdc_lab.simulate.scenario_yaml import PLAIN, Value, parsed


def replace_value(top: Value, path: str, text: str) -> None:
    """Put another value where ``path`` (``settings.tick``) leads, sections on the way included.

    Raises
    ------
    ScenarioError
        The text is no YAML, or the path leads through what is no section.
    """
    *sections, name = path.split(".")
    value = parsed(text, f"{path}={text}").node
    for section in sections:
        top = _section(top, section)
    if not isinstance(top.node, yaml.MappingNode):
        raise top.wrong(f"fields with names, for {path}")
    value.start_mark = value.end_mark = top.node.start_mark
    entries = [(k, v) for k, v in top.node.value if k.value != name]
    top.node.value = [*entries, (_key(name, top.node), value)]


def _section(top: Value, name: str) -> Value:
    for key, value in top.entries():
        if key.text() == name:
            return value
    fresh = yaml.MappingNode(f"{PLAIN}map", [], top.node.start_mark, top.node.end_mark)
    top.node.value.append((_key(name, top.node), fresh))
    return Value(top.file, fresh, name)


def _key(name: str, node: yaml.Node) -> yaml.ScalarNode:
    return yaml.ScalarNode(f"{PLAIN}str", name, node.start_mark, node.end_mark)
