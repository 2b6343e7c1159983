"""The fault mix: its totals are those of the published anchors, its draws follow it, its lines can be read back."""

import random
from collections import Counter

import pytest

from kcover.faults import xid
from simulator.world import mix, printk, random_faults


def test_the_presets_bracket_the_anchors():
    per_day = {preset: mix.load().rate(preset, node_affecting=True) * 10_000 * 24 for preset in mix.PRESETS}
    assert 2.5 < per_day["low"] < 3.1
    assert 4 < per_day["mid"] < 6
    assert 9 < per_day["high"] < 9.7


def test_a_1024_gpu_job_fails_as_often_as_the_sources_say():
    hours = {preset: 1 / (mix.load().rate(preset, node_affecting=True) * 1024) for preset in ("mid", "high")}
    assert 45 < hours["mid"] < 60
    assert 22 < hours["high"] < 30


def test_academic_noise_outnumbers_faults_by_a_hundred():
    loaded = mix.load()
    noise, faults = loaded.noise_rate("academic") * 240_000, loaded.rate("mid", node_affecting=True) * 240_000
    assert 400 < noise < 700
    assert noise / faults > 80


def test_draws_follow_the_rates():
    loaded, rng = mix.load(), random.Random(7)
    drawn = [loaded.draw(rng, preset="mid") for _ in range(20_000)]
    shares = Counter(one.id for one in drawn)
    visible = {entry.id: entry.rates["mid"] for entry in loaded.classes if entry.visible}
    for id, rate in visible.items():
        assert shares[id] / len(drawn) == pytest.approx(rate / sum(visible.values()), abs=0.012)
    off_bus = [one for one in drawn if one.id == "gpu_off_bus"]
    assert {one.xids for one in off_bus} == {(79, 45)}
    assert sum(one.cure == "reboot" for one in off_bus) / len(off_bus) == pytest.approx(0.55, abs=0.03)
    assert all(one.hangs_node == (one.id in ("node_unresponsive", "host_kernel_or_part")) for one in drawn)


def test_one_seed_gives_the_same_weather():
    loaded = mix.load()
    first, second = ([loaded.draw(random.Random(3), preset="high") for _ in range(3)] for _ in range(2))
    assert first == second


def test_shares_that_do_not_sum_to_one_are_refused():
    entry = {
        "id": "x", "rate": {}, "scope": "gpu", "node_affecting": True, "kills_job": 0, "emission": [],
        "cure": {"reset": 0.5},
    }  # fmt: skip
    noise = {"kinds": [], "xid31_rate": {}, "all_ranks": 0}
    data = {"classes": [entry], "program_noise": noise, "repeat": {"persistence_seconds": {}}}
    with pytest.raises(ValueError, match=r"x: cure sums to 0\.5"):
        mix.parse(data)


@pytest.mark.parametrize(
    "code", [13, 31, 43, 45, 48, 62, 63, 64, 74, 92, 94, 95, 109, 119, 120, 140, 149, 154, 171, 999]
)
def test_an_xid_line_reads_back(code: int):
    process = printk.Process(pid=4711, name="pt_main_thread")
    (line,) = printk.xid(code, "0000:4e:00", process=process)
    seen = xid.parse_line(line)
    assert (seen.kind, seen.code, seen.pci) == ("xid", code, "0000:4e:00")
    assert seen.pid in (None, 4711)


def test_a_lost_gpu_prints_two_lines():
    first, second = (xid.parse_line(line) for line in printk.xid(79, "0000:4e:00"))
    assert (first.code, first.pci, first.pid) == (79, "0000:4e:00", None)
    assert (second.code, xid.slot(second.pci)) == (79, "0000:4e:00")


def test_a_torn_down_channel_names_its_cause():
    (line,) = printk.xid(45, "0000:4e:00", cause=149)
    assert xid.parse_line(line).cause == 149


@pytest.mark.parametrize(("code", "fatal"), [(12028, False), (20034, True), (11001, True), (77777, False)])
def test_an_sxid_prints_three_lines(code: int, fatal: bool):
    seen = [xid.parse_line(line) for line in printk.sxid(code, switch=2)]
    assert [one.code for one in seen] == [code] * 3
    assert [one.fatal for one in seen] == [fatal, None, None]


def test_the_weather_knows_how_fast_it_is(cluster):
    weather = random_faults.RandomFaults(cluster.world, random.Random(1), faults_per_hour=60)
    gpus = 20 * 8
    assert weather.compression == pytest.approx(60 / (mix.load().rate("mid", visible=True) * gpus))
    assert weather.noise_per_hour > 10 * 60


def test_no_hardware_fails_while_the_weather_is_quiet(cluster):
    weather = random_faults.RandomFaults(cluster.world, random.Random(1), faults_per_hour=600, quiet_seconds=300)
    weather.start()
    cluster.clock.advance(299, cluster.agenda)
    assert set(weather.seen) == {"program"}
    assert not any(host.faults or len(host.boots) > 1 for host in cluster.world.machines.values())
    cluster.clock.advance(300, cluster.agenda)
    assert any(host.faults or len(host.boots) > 1 for host in cluster.world.machines.values())


def test_weather_shows_in_the_kernel_logs(cluster):
    weather = random_faults.RandomFaults(cluster.world, random.Random(1), faults_per_hour=600)
    weather.start()
    cluster.clock.advance(600, cluster.agenda)
    assert weather.seen["program"] > 300
    assert weather.seen.get("program_death", 0) < 10  # jobs fail at the pace of people, not of the compressed faults
    hardware = sum(count for id, count in weather.seen.items() if not id.startswith("program"))
    assert hardware > 10
    assert any(host.faults or len(host.boots) > 1 for host in cluster.world.machines.values())
