"""``manage.py policy``: files in, files out, mistakes with file and line."""

from datetime import datetime
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from kcover_portal.policies import queries, services
from kcover_portal.policies.models import Policy
from tests.portal.policies.texts import KCE_EXAMPLE, policy, standby

pytestmark = pytest.mark.django_db


def run(*words: str) -> tuple[str, str]:
    out, err = StringIO(), StringIO()
    call_command("policy", *words, stdout=out, stderr=err)
    return out.getvalue(), err.getvalue()


def test_files_are_applied_and_exported(tmp_path: Path) -> None:
    first, second = tmp_path / "a.yaml", tmp_path / "b.yaml"
    first.write_text(KCE_EXAMPLE)
    second.write_text(policy("b", codes='["48"]'))
    said, warned = run("apply", "-f", str(first), "-f", str(second), "--reason", "start")
    assert said == "policy test-1 revision 1 applied\npolicy b revision 1 applied\n"
    assert warned == ""
    revision = queries.in_force()[0]
    assert (revision.reason, revision.author.partition(":")[0]) == ("start", "command")
    assert run("apply", "-f", str(second))[0] == "policy b revision 1 unchanged\n"

    exported = tmp_path / "all.yaml"
    exported.write_text(run("export")[0])
    assert run("apply", "-f", str(exported))[0] == "policy b revision 1 unchanged\npolicy test-1 revision 1 unchanged\n"


def test_a_text_is_read_from_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(policy("a").encode())))
    assert run("apply", "-f", "-")[0] == "policy a revision 1 applied\n"


def test_a_mistake_is_named_as_compilers_do(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text(policy("a", codes="[62]"))
    with pytest.raises(CommandError) as caught:
        run("apply", "-f", str(file))
    first, second = str(caught.value).split("\n")
    assert first == f"nothing in {file} was applied:"
    assert second.startswith(
        f'{file}:7:19: spec.rules[0].errorCode[0]: An error code is a string of digits: write "62"'
    )
    assert Policy.objects.count() == 0


def test_a_mistake_without_a_place_in_the_document(tmp_path: Path) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("# nothing\n")
    with pytest.raises(CommandError) as caught:
        run("apply", "-f", str(file))
    assert str(caught.value).split("\n")[1] == f"{file}:1:1: The text contains no policy."


def test_warnings_are_printed_and_do_not_block(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(policy("a", codes='["31"]'))
    said, warned = run("apply", "-f", str(file))
    assert said == "policy a revision 1 applied\n"
    assert warned.startswith(f"warning: {file}:7:19: Xid 31 is caused by a program")


def test_a_file_that_is_not_there_is_refused() -> None:
    with pytest.raises(CommandError, match="cannot read /nowhere: No such file"):
        run("apply", "-f", "/nowhere")


def test_policies_are_listed_taken_back_and_deleted(now: datetime) -> None:
    for codes in ('["62"]', '["63"]'):
        services.apply(policy("a", codes=codes), author="user:anna", reason="", now=now)
    assert run("list")[0] == "a\trevision 2\t1 rule\tby user:anna\n"
    assert run("rollback", "a", "1", "--reason", "why")[0] == "policy a revision 3 applied\n"
    assert queries.candidates()[0].rule.codes == ("62",)
    assert run("delete", "a", "--reason", "done")[0] == "policy a disabled\n"
    for words, message in (
        (("delete", "a"), "Unknown policy a"),
        (("rollback", "a", "9", "--reason", "why"), "a has no revision 9"),
    ):
        with pytest.raises(CommandError, match=message):
            run(*words)


def test_two_revisions_are_compared(now: datetime) -> None:
    for codes in ('["62"]', '["63"]', '["64"]'):
        services.apply(policy("a", codes=codes), author="user:anna", reason="", now=now)
    said = run("diff", "a", "1")[0].split("\n")
    assert said[:2] == ["--- a revision 1", "+++ a revision 3"]
    assert '+      errorCode: ["64"]' in said
    assert '+      errorCode: ["63"]' in run("diff", "a", "1", "2")[0]
    with pytest.raises(CommandError, match="Unknown policy b"):
        run("diff", "b", "1")


def test_going_back_needs_a_reason(now: datetime) -> None:
    services.apply(policy("a"), author="user:anna", reason="", now=now)
    with pytest.raises(CommandError, match="--reason"):
        run("rollback", "a", "1")


def test_standby_policies_go_by_the_same_command(tmp_path: Path) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(policy("a") + "---\n" + standby("s"))
    assert run("apply", "-f", str(file))[0] == "policy a revision 1 applied\nstandby policy s revision 1 applied\n"
    assert run("list")[0].split("\n")[1].startswith("s\trevision 1\t1 match\tby command:")
    file.write_text(standby("s").replace("spare", "other"))
    assert run("apply", "-f", str(file))[0] == "standby policy s revision 2 applied\n"
    assert run("export", "s")[0] == file.read_text()
    assert "-      targetNode: {env: spare}" in run("diff", "s", "1", "--standby")[0]
    assert run("rollback", "s", "1", "--standby", "--reason", "why")[0] == "standby policy s revision 3 applied\n"
    assert run("delete", "s", "--standby", "--reason", "done")[0] == "policy s disabled\n"
    assert run("list", "--archived")[0].rstrip().endswith(": done")
    with pytest.raises(CommandError, match="unknown policy s"):
        run("export", "s")


def test_the_shipped_policies_are_installed_once() -> None:
    assert run("defaults")[0] == "policy defaults revision 1 applied\n"
    assert (
        run("defaults")[0]
        == "the built-in policies are already installed; --update replaces them with the current versions\n"
    )
    assert queries.in_force()[0].because["code"] == "policy_built_in"


def test_a_pack_is_installed_in_a_mode() -> None:
    said, _ = run("install", "kce", "--mode", "approve", "--reason", "move")
    assert said.splitlines() == [
        f"policy {name} revision 1 applied" for name in ("kce", "kce-fallen-off-the-bus", "kce-global")
    ]
    run("install", "konduktor")
    modes = {one.policy: one.rule.mode for one in queries.candidates()}
    assert (modes["kce-global"], modes["konduktor"]) == ("approve", "shadow")


def test_a_rule_that_takes_work_away_for_any_fault_is_named_before_it_is_published() -> None:
    wide = "{priority: 1, actions: [{name: cordon}, {name: drain}]}"
    assert warned_of(wide) == ["rule_of_any_fault"]
    assert warned_of(wide.replace(", {name: drain}", "")) == []
    assert warned_of(wide.replace("1,", '1, errorCode: ["79"],')) == []
    assert warned_of(wide.replace("1,", "1, mode: shadow,")) == []


def warned_of(rule: str) -> list[str]:
    header = "apiVersion: kcover.io/v1\nkind: RescuePolicy\nmetadata: {name: wide}\n"
    validated = services.validate(f"{header}spec: {{rules: [{rule}]}}\n")
    assert validated.problems == ()
    return [warning.reason.code for warning in validated.warnings]
