"""Lines of the kernel as collectors store them: in a string of JSON, behind which other fields may stand."""

import json

import pytest

from kcover.faults import nvlink5, xid

FORMS = ('{"MESSAGE":%s}', '{"log":%s,"stream":"stderr"}', '{"_TRANSPORT":"kernel", "MESSAGE": %s, "PRIORITY":"3"}')
XID, SXID = "NVRM: Xid (PCI:0000:c5:00): ", "nvidia-nvswitch3: SXid (PCI:0000:04:00.0): "


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize(
    "text",
    [
        XID + "79",
        XID + "79, GPU has fallen off the bus.",
        XID + '13, pid=1, name=a"b, Graphics Exception',
        XID + "145, RLW_SRC_TRACK Nonf",
        XID + "154, GPU recovery action changed from 0x2 (Node Reboot Required) to 0x0 (None)",
        SXID + "20034, Non-fatal",
        SXID + "20034, Non-fatal, Link 44 LTSSM Fault Up",
    ],
)
def test_a_json_line_is_parsed_like_its_plain_text(form: str, end: str, text: str) -> None:
    plain, wrapped = xid.parse_line(text), xid.parse_line(form % json.dumps(text + end))
    assert plain is not None
    assert wrapped is not None
    assert (wrapped.kind, wrapped.code, wrapped.pci, wrapped.pid) == (plain.kind, plain.code, plain.pci, plain.pid)
    assert nvlink5.is_fatal(wrapped) == nvlink5.is_fatal(plain)
    assert xid.is_all_clear(wrapped.code, wrapped.text) == xid.is_all_clear(plain.code, plain.text)
    assert wrapped.text == json.dumps(plain.text)[1:-1]
