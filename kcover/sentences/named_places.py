"""Places whose name says what they are: "rack-05", not "rack rack-05"."""

from collections.abc import Iterable, Mapping

from kcover.sentences.i18n import gettext_noop as _

NAME = "{name}"

# By the code of a sentence: the field with the name, the words, and the sentence without them.
NAMED: Mapping[str, tuple[str, Iterable[str], str]] = {
    "scope_cluster": ("name", ("cluster", "集群"), NAME),
    "scope_pool": ("name", ("pool", "节点池"), NAME),
    "scope_node": ("name", ("node", "节点"), NAME),
    "scope_rack": ("name", ("rack", "机架", "机柜"), NAME),
    "scope_leaf": ("name", ("leaf",), NAME),
    "scope_nvlink": ("name", ("nvlink",), NAME),
    "need_on_nodes_rack": ("value", ("rack", "机架", "机柜"), _("{n} nodes in {value}")),
    "need_on_nodes_leaf": ("value", ("leaf",), _("{n} nodes on {value}")),
    "need_on_nodes_nvlink": ("value", ("nvlink",), _("{n} nodes in {value}")),
}


def template(code: str, values: Mapping[str, object]) -> str:
    """The sentence for a place whose name begins with the word of its kind; "" for any other one."""
    if code not in NAMED:
        return ""
    field, words, without = NAMED[code]
    name = str(values[field]).casefold()
    return without if any(name.startswith(word) and not name[len(word) :][:1].isalpha() for word in words) else ""
