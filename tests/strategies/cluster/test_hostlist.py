import pytest

from strategies.cluster import hostlist


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("localhost", ["localhost"]),
        ("n[1-2]", ["n1", "n2"]),
        ("n[1-2,5]", ["n1", "n2", "n5"]),
        ("n[1-2],m5,o[3-4,6]", ["n1", "n2", "m5", "o3", "o4", "o6"]),
        ("n[08-10]", ["n08", "n09", "n10"]),
        ("n[8-10]", ["n8", "n9", "n10"]),
        ("a[01-02]b[1-2]", ["a01b1", "a01b2", "a02b1", "a02b2"]),
        ("gpu[7]-ib", ["gpu7-ib"]),
        ("node_1.example.org", ["node_1.example.org"]),
        # The order is the step's, not the alphabet's.
        ("n[3,1]", ["n3", "n1"]),
    ],
)
def test_expands_hosts(text: str, names: list[str]) -> None:
    assert hostlist.hosts(text) == names


@pytest.mark.parametrize(
    "text",
    ["", ",", "n1,", "n[1", "n1]", "n[]", "n[[1]]", "n[a-b]", "a b", "n1:2"],
)
def test_refuses_hosts(text: str) -> None:
    with pytest.raises(ValueError, match="must be a list of hosts, such as"):
        hostlist.hosts(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n[1-]", "'1-' is neither a number nor a range"),
        ("n[1,,2]", "'' is neither a number nor a range"),
        ("n[1-2-3]", "'1-2-3' is neither"),
        ("n[5-3]", "the range 5-3 runs backwards"),
        ("n[0-999999999]", "longer than 10,000"),
        ("n[0-999]m[0-999]", "longer than 10,000"),
        ("n[1-6000],m[1-6000]", "longer than 10,000"),
        (f"n[{'1' * 5000}]", "is neither a number nor a range"),
    ],
    ids=lambda text: text[:20],
)
def test_refuses_ranges(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hostlist.hosts(text)


def test_expands_numbers() -> None:
    assert hostlist.numbers("12000-12002,12007") == [
        "12000",
        "12001",
        "12002",
        "12007",
    ]


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("1", [1]),
        ("2(x3),1", [2, 2, 2, 1]),
        ("4,2(x2)", [4, 2, 2]),
        ("72(x1)", [72]),
    ],
)
def test_expands_counts(text: str, counts: list[int]) -> None:
    assert hostlist.counts(text) == counts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "'' is no number of tasks; must be like"),
        ("0", "'0' is no number of tasks"),
        ("2(x0)", "is no number of tasks"),
        ("2x3", "is no number of tasks"),
        ("2(x3", "is no number of tasks"),
        ("2,", "'' is no number of tasks"),
        ("1(x99999)", "longer than 10,000"),
    ],
)
def test_refuses_counts(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hostlist.counts(text)
