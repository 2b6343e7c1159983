"""Equal shares of owners."""

from kcover.values import shares

MANY = [("evil", number) for number in range(1_000)]
FEW = [(f"team-{number}", 0) for number in range(3)]


def owner(item: tuple[str, int]) -> str:
    return item[0]


def test_the_first_of_every_owner_comes_before_the_second_of_any() -> None:
    assert shares.in_turns([*MANY[:3], *FEW], owner) == [MANY[0], *FEW, *MANY[1:3]]


def test_each_turn_has_something_of_every_owner_and_all_turns_have_everything() -> None:
    items = [*MANY, *FEW]
    turns = [shares.rotated(items, owner, most=50, turn=turn) for turn in range(7, 90)]
    assert all(len(turn) <= 50 and set(FEW) <= set(turn) for turn in turns)
    assert {item for turn in turns for item in turn} == set(items)


def test_more_owners_than_places_take_turns() -> None:
    items = [(f"team-{number}", of) for number in range(10) for of in range(2)]
    turns = [shares.rotated(items, owner, most=4, turn=turn) for turn in range(5)]
    assert all(len(set(turn)) == 4 for turn in turns)
    assert {item for turn in turns for item in turn} == set(items)


def test_few_items_are_all_taken() -> None:
    assert shares.rotated(FEW, owner, most=3, turn=5) == FEW
