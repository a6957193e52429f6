from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from rocketlet.common.message_record import Fault, Record, blank, decode, encode
from rocketlet.store.layout.log_scan import Damage, chain, head_dtype, last_nonzero, read_through, resync, scan

BASE = 1 << 30
FILE = 4096


def log_of(bodies: list[bytes], base: int = BASE) -> tuple[bytearray, list[int]]:
    """A file of records followed by zeros, and the places of the records."""
    file = bytearray(FILE)
    at, places = 0, []
    for number, body in enumerate(bodies):
        raw = encode(Record("TopicTest", 0, number, base + at, body, store_timestamp=1_700_000_000_000 + number))
        file[at : at + len(raw)] = raw
        places.append(at)
        at += len(raw)
    return file, [*places, at]


def test_a_scan_stops_at_zeros() -> None:
    file, places = log_of([b"a", b"bb", b""])
    found = scan(file, 0, FILE, BASE)
    assert (found.places, found.end, found.fault) == (places[:-1], places[-1], Fault.EMPTY)
    assert chain(file, 0, FILE) == (places[:-1], places[-1])
    assert scan(file, 0, FILE, BASE, limit=2).places == places[:2]


def test_a_scan_stops_at_the_blank_record() -> None:
    file, places = log_of([b"a", b"bb"])
    file[places[-1] : places[-1] + 8] = blank(FILE - places[-1])
    file[places[-1] + 8 :] = b"\xda" * (FILE - places[-1] - 8)
    assert scan(file, 0, FILE, BASE).fault is Fault.BLANK
    found = read_through(file, 0, FILE, BASE)
    assert (found.places, found.damages, found.end, found.blank) == (places[:-1], [], places[-1], True)


def test_a_flipped_body_bit_ends_a_scan_but_not_a_read() -> None:
    file, places = log_of([b"a", b"bb", b"ccc"])
    file[places[1] + 88] ^= 1
    found = scan(file, 0, FILE, BASE)
    assert (found.places, found.fault) == (places[:1], Fault.BODY_CRC)
    assert scan(file, 0, FILE, BASE, verify_body=False).places == places[:-1]
    through = read_through(file, 0, FILE, BASE)
    assert through.places == places[:-1]
    assert through.damages == [Damage(places[1], places[2] - places[1], Fault.BODY_CRC)]


def test_a_broken_magic_number_is_skipped() -> None:
    file, places = log_of([b"a", b"bb", b"ccc"])
    file[places[1] + 4] ^= 0xFF
    found = read_through(file, 0, FILE, BASE)
    assert found.places == [places[0], places[2]]
    assert found.damages == [Damage(places[1], places[2] - places[1], Fault.MAGIC)]
    assert found.end == places[3]


def test_a_copy_of_a_record_inside_a_body_is_not_a_record() -> None:
    inner = encode(Record("TopicTest", 0, 0, 7, b"inner"))
    file, places = log_of([b"x" + inner + inner, b"bb"])
    assert resync(file, 1, FILE, BASE) == places[1]
    file[4] ^= 0xFF
    found = read_through(file, 0, FILE, BASE)
    assert (found.places, found.damages) == ([places[1]], [Damage(0, places[1], Fault.MAGIC)])


def test_a_torn_tail_is_damage_up_to_its_last_byte() -> None:
    file, places = log_of([b"a", b"b" * 200])
    cut = places[1] + 150
    file[cut:] = bytes(FILE - cut)
    found = read_through(file, 0, FILE, BASE)
    assert found.places == places[:1]
    (damage,) = found.damages
    assert damage.at == places[1]
    assert damage.fault in (Fault.BODY_CRC, Fault.LENGTHS)
    assert found.end == damage.at + damage.size == cut


def test_zeros_between_records_are_damage() -> None:
    file, places = log_of([b"a", b"bb", b"ccc"])
    file[places[1] : places[2]] = bytes(places[2] - places[1])
    found = read_through(file, 0, FILE, BASE)
    assert found.places == [places[0], places[2]]
    assert found.damages == [Damage(places[1], places[2] - places[1], Fault.EMPTY)]


def test_foreign_bytes_without_a_record() -> None:
    file = bytearray(b"\x7f" * 100 + bytes(FILE - 100))
    found = read_through(file, 0, FILE, BASE)
    assert (found.places, found.damages, found.end) == ([], [Damage(0, 100, Fault.MAGIC)], 100)
    assert resync(file, 0, FILE, BASE) is None


def test_records_of_another_offset_are_damage() -> None:
    file, places = log_of([b"a", b"bb"], base=BASE + 4096)
    found = scan(file, 0, FILE, BASE)
    assert (found.places, found.fault) == ([], Fault.OFFSET)
    assert read_through(file, 0, FILE, BASE).damages == [Damage(0, last_nonzero(file, 0, FILE) + 1, Fault.OFFSET)]
    assert places[-1] - 3 <= last_nonzero(file, 0, FILE) < places[-1]


def test_a_magic_number_across_two_search_windows() -> None:
    window = 1 << 20
    for shift in range(-12, 2):
        at = window + shift
        file = bytearray(b"\x55" * (window + 4096))
        raw = encode(Record("TopicTest", 0, 0, BASE + at, b"border"))
        file[at : at + len(raw)] = raw
        assert resync(file, 0, len(file), BASE) == at


@given(st.lists(st.binary(max_size=120), max_size=12), st.integers(0, FILE - 1), st.integers(0, 255))
def test_one_changed_byte_never_loses_another_record(bodies: list[bytes], at: int, value: int) -> None:
    file, places = log_of(bodies)
    file[at] = value
    found = read_through(file, 0, FILE, BASE)
    for begin, end in pairwise(places):
        if not begin <= at < end:
            assert begin in found.places
    covered: set[int] = set()
    for place in found.places:
        covered |= set(range(place, place + decode(file, place).size))
    for damage in found.damages:
        covered |= set(range(damage.at, damage.at + damage.size))
    assert covered >= set(range(min(places[-1], found.end)))
    assert last_nonzero(file, found.end, FILE) < found.end


def test_heads_as_numpy_arrays() -> None:
    import numpy as np

    file, places = log_of([b"a", b"bb"])
    head = np.frombuffer(file, head_dtype(), 1, places[1])[0]
    assert (head["log_offset"], head["queue_offset"], head["size"]) == (BASE + places[1], 1, places[2] - places[1])


def read_in_parts(file: bytearray, cuts: list[int]) -> tuple[list[int], list[Damage]]:
    """What readers of the parts find, each knowing only where its part begins."""
    places: list[int] = []
    damages: list[Damage] = []
    for start, stop in pairwise([0, *cuts, FILE]):
        first = resync(file, start, FILE, BASE) if start else 0
        if first is not None and first < stop:
            part = read_through(file, first, FILE, BASE, stop=stop)
            places += part.places
            damages += part.damages
    return places, damages


@given(
    st.lists(st.binary(max_size=120), max_size=12),
    st.lists(st.tuples(st.integers(0, FILE - 1), st.integers(0, 255)), max_size=3),
    st.lists(st.integers(1, FILE - 1), max_size=4, unique=True).map(sorted),
    st.booleans(),
)
def test_reading_in_parts_finds_each_record_and_damage_once(
    bodies: list[bytes], flips: list[tuple[int, int]], cuts: list[int], full: bool
) -> None:
    file, places = log_of(bodies)
    if full:
        file[places[-1] : places[-1] + 8] = blank(FILE - places[-1])
    for at, value in flips:
        file[at] = value
    whole = read_through(file, 0, FILE, BASE)
    assert read_in_parts(file, cuts) == (whole.places, whole.damages)
