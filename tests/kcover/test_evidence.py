"""Evidence: what is removed from its text, the format of a bundle, and the parameters of an upload."""

import gzip
import io
import uuid

import pytest
from hypothesis import given, strategies as st

from kcover.evidence import bundle
from kcover.evidence.bundle import Section
from kcover.evidence.redaction import MAX_KEY_LINES, MAX_LINE_CHARACTERS, Redactor


def redact(text: str) -> str:
    redactor = Redactor()
    return "\n".join(map(redactor.line, text.split("\n")))


SECRETS = (
    ("password=hunter2", "hunter2"),
    ("TOKEN password=hunter2", "hunter2"),
    ("the token: --secret --token hunter2", "hunter2"),
    ("the token: --secret hunter2", "hunter2"),
    ("password=--token hunter2", "hunter2"),
    ("--token password=hunter2", "hunter2"),
    ("--token password: hunter2", "hunter2"),
    ("DB_PASSWORD: 's3 cret' next", "s3 cret"),
    ("MYAPP_API_KEY = abc-123", "abc-123"),
    ("HF_TOKEN=plain", "plain"),
    ('{"client_secret": "plain"}', "plain"),
    ("curl --api-key plain123 https://host", "plain123"),
    ("Authorization: Bearer abcdef123456", "abcdef123456"),
    ("proxy-authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ("eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl", "eyJzdWIiOiJ4In0"),
    ("seen kca_0123456789abcdef in a log", "kca_0123456789abcdef"),
    ("ghp_abcdefghijklmnopqrstuvwxyz", "ghp_abcdefghijklmnopqrstuvwxyz"),
    ("AKIAIOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE"),
    ("hf_abcdefghijklmnop and nvapi-abcdefghij", "abcdefghij"),
    ("https://user:pw@host/x", "user:pw"),
    ("write to ann.smith+gpu@mail.example.com", "ann.smith"),
    ("Name                              : /home/ann/bin/python train.py --lr 3", "train.py"),
    ("open /home/ann/data failed", "ann"),
    ('audit: exe="/opt/app/run" acct="ann"', "ann"),
    ("audit: proctitle=707974686F6E002D63", "707974686F6E002D63"),
    ("IN=eth0 SRC=8.8.8.8 DST=10.0.0.1", "8.8.8.8"),
    ("from 2001:4860:4860::8888", "2001:4860"),
    ("cri-containerd-0123456789abcdef0123456789abcdef0123456789abcdef", "0123456789abcdef"),
)
KEPT = (
    "NVRM: Xid (PCI:0000:4e:00): 79, pid=1234, name=python3, GPU has fallen off the bus.",
    "NVRM: Xid (PCI:0000:4e:00): 95, pid='<unknown>', name=<unknown>, Uncontained ECC error",
    "    GPU UUID                              : GPU-5d8a3b4c-1111-2222-3333-444455556666",
    "    Serial Number                         : 1652922007563",
    "    Product Name                          : NVIDIA H100 80GB HBM3",
    "        Name                              : python3",
    "    VBIOS Version                         : 96.00.74.00.01",
    "mlx5_core 0000:29:00.0: firmware version: 28.39.1002",
    "mpt3sas version 43.100.00.00 loaded",
    "eth0: a0:88:c2:11:22:33 10.20.30.40 fe80::a288:c2ff:fe11:2233 192.168.0.7 127.0.0.1",
    "4e:00.0 3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)",
    "\t\tLnkSta: Speed 32GT/s, Width x16",
    "Command line: BOOT_IMAGE=/vmlinuz root=UUID=5d8a3b4c-1111-2222-3333-444455556666 ro iommu=pt",
    "   1 | 11/21/2026 | 08:00:00 | Critical Interrupt #0x10 | Bus Fatal Error | Asserted",
    "Invalid token at offset 3; the secret of a key",
)


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_secrets_and_user_data_are_removed(text: str, secret: str) -> None:
    found = redact(text)
    assert secret not in found
    assert "[removed: " in found or "[user]" in found


@pytest.mark.parametrize("text", KEPT)
def test_identifiers_of_hardware_and_faults_are_kept(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("text", [text for text, _ in SECRETS])
def test_redacting_twice_changes_nothing(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def test_a_private_key_is_removed_with_all_of_its_lines() -> None:
    text = "before\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nafter"
    assert redact(text).split("\n") == ["before", *["[removed: private key]"] * 4, "after"]


def test_a_key_without_an_end_does_not_take_the_rest() -> None:
    lines = redact("\n".join(["-----BEGIN PRIVATE KEY-----", *["x"] * (MAX_KEY_LINES + 1)])).split("\n")
    assert (lines[-2], lines[-1]) == ("[removed: private key]", "x")


def test_control_characters_and_long_lines_are_cut() -> None:
    assert redact("a\x1b[2Jb") == "a?[2Jb"
    assert len(redact("x " * MAX_LINE_CHARACTERS)) == MAX_LINE_CHARACTERS


LIKE_SECRETS = ("TOKEN", "--token", "-password", "secret:", "api_key=", "--secret", "pwd", "cookie", "Authorization:")
NAMES = st.from_regex(r"[A-Za-z_]{0,12}(password|token|secret|api_key)", fullmatch=True)


@given(
    st.one_of(
        st.tuples(NAMES | st.sampled_from(["--token", "-pwd"]), st.sampled_from(["=", ": ", " = "])),
        st.tuples(st.sampled_from(["--token", "-password", "--api-key"]), st.sampled_from([" ", "  "])),
    ).map("".join),
    st.from_regex(r"Zq[a-z0-9]{6,20}", fullmatch=True),
    st.one_of(
        st.text(alphabet=st.characters(codec="utf-8", exclude_characters="\n"), max_size=60),
        st.lists(st.sampled_from([*LIKE_SECRETS, "x", '"', "'", "=", ":", " "]), max_size=6).map(" ".join),
    ),
)
def test_the_value_of_a_secret_never_survives(name: str, value: str, before: str) -> None:
    assert value not in redact(f"{before} {name}{value} end")


def test_a_bundle_is_gzip_with_a_heading_above_each_part() -> None:
    file = io.BytesIO()
    writer = bundle.Writer(file)
    writer.add(Section(name="versions", status="ok", seconds=0.04), ["kernel: 6.8", "token=abc"])
    writer.add(Section(name="dcgmi health -c", status="missing", note="install datacenter-gpu-manager"))
    writer.close()
    assert gzip.decompress(file.getvalue()).decode().split("\n") == [
        "===== versions (ok, 0.0 s) =====",
        "kernel: 6.8",
        "token=[removed: secret]",
        "",
        "===== dcgmi health -c (missing, 0.0 s, install datacenter-gpu-manager) =====",
        "",
        "",
    ]


def test_a_bundle_never_exceeds_its_bound() -> None:
    file, lines = io.BytesIO(), (f"{uuid.uuid4()} {uuid.uuid4()}" for _ in range(200_000))
    writer = bundle.Writer(file)
    writer.add(Section(name="kernel log", status="ok"), lines)
    writer.close()
    assert bundle.CUT_BYTES < len(file.getvalue()) <= bundle.MAX_BYTES


UPLOAD = bundle.Upload(bundle=uuid.uuid4(), offset=5, size=10, sha256="a" * 64, age=3)


def test_an_upload_is_read_as_it_was_written() -> None:
    assert bundle.read_upload(UPLOAD.query()) == UPLOAD
    without_age = {name: value for name, value in UPLOAD.query().items() if name != "age"}
    assert bundle.read_upload(without_age).age == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bundle", "7"),
        ("offset", "10"),
        ("offset", "-1"),
        ("offset", "٣"),
        ("size", "0"),
        ("size", str(bundle.MAX_BYTES + 1)),
        ("size", ""),
        ("sha256", "A" * 64),
        ("sha256", "a" * 63),
        ("age", "soon"),
        ("age", "1" * 11),
    ],
)
def test_an_invalid_parameter_is_named(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"^{name}$"):
        bundle.read_upload({**UPLOAD.query(), name: value})


def test_sections_of_an_agent_are_read_whatever_it_sends() -> None:
    good = {"name": "lspci", "status": "ok", "seconds": 1.5, "bytes": 7, "note": ""}
    odd = [{**good, "seconds": True, "bytes": -1, "note": 7}, {**good, "status": "fine"}, 7, {"status": "ok"}]
    assert bundle.read_sections([good, *odd]) == [
        Section(name="lspci", status="ok", seconds=1.5, bytes=7),
        Section(name="lspci", status="ok", note="7"),
    ]
    assert bundle.read_sections({"a": 1}) == []
    assert len(bundle.read_sections([good] * 100)) == bundle.MAX_SECTIONS
