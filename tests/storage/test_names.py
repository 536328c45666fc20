import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.storage import Invalid, names

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=16)


@given(TEXT)
def test_escaped_text_is_one_legal_part_and_comes_back(text: str) -> None:
    part = names.escape(text)
    assert "/" not in names.check_name(part)
    assert names.unescape(part) == text


@given(TEXT, TEXT)
def test_different_texts_get_different_parts(first: str, second: str) -> None:
    assert (names.escape(first) == names.escape(second)) == (first == second)


@given(st.text(st.sampled_from(["~", "F", "4", "1", "-", ".", "/", "é", "\udcff"])))
def test_names_that_were_not_made_here_stand_for_no_text(part: str) -> None:
    """They are skipped: no two names stand for the same text, and none makes a listing fail."""
    text = names.unescape(part)
    assert text is None or names.escape(text) == part
    assert text is None or not names.is_cut(part)


@pytest.mark.parametrize("digit", ["٣", "\uff11"])
def test_numbers_are_of_plain_digits(digit: str) -> None:
    number = digit * 20
    assert names.parse_owner(f"owner-{number}") is None
    assert names.parse_checkpoint_object(f"chk-{number}/_metadata") is None
    assert not names.is_of_savepoint(f"a/part-{digit * 5}-00000.parquet")


@pytest.mark.parametrize("text", ["", "x" * 201, "é" * 100, "\ud800"])
def test_text_that_cannot_be_a_part_is_refused(text: str) -> None:
    with pytest.raises(Invalid):
        names.escape(text)


LONG = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400)


@given(LONG, LONG, st.sampled_from([80, 100, 200]))
def test_text_of_any_length_is_one_legal_part_of_its_own(a: str, b: str, most: int) -> None:
    first, second = names.escape_any(a, most), names.escape_any(b, most)
    assert "/" not in names.check_name(first)
    assert len(first) <= most
    assert (first == second) == (a == b)
    assert names.is_cut(first) or names.unescape(first) == a


@pytest.mark.parametrize("text", ["x" * 200, "é" * 33, "a/b", ".x"])
def test_names_of_older_versions_do_not_change(text: str) -> None:
    assert names.escape_any(text) == names.job_folder(text) == names.escape(text)


@pytest.mark.parametrize("text", ["数" * 18, "数" * 300, "." * 300, "~-" * 100, "u" * 5000])
def test_files_and_folders_are_named_after_any_text(text: str) -> None:
    """Two that begin alike are two."""
    alike = f"{text}!"
    both = [
        (
            names.exclusive_file(42, each, "0" * 16),
            names.shared_file(42, f"source-{each}", "0" * 16),
            f"{names.job_folder(each)}/x",
        )
        for each in (text, alike)
    ]
    assert len({names.check_name(name) for its in both for name in its}) == 6
    assert names.writer_of(names.shared_file(42, text, "0" * 16)) == 42


def test_the_folder_of_a_long_name_is_always_the_same() -> None:
    """It is looked for under this name by every later version."""
    assert names.job_folder("数" * 23) == (
        "~E6~95~B0" * 18 + "~E6~" + "~-" + "3a95c62c88ac8f9599693e4e6563e28c"
    )


@pytest.mark.parametrize("name", ["a", "a/b", "chk-1/_metadata", "a.b", "~20", "x" * 200])
def test_legal_names(name: str) -> None:
    assert names.check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "/a", "a/", "a//b", ".", "..", "a/../b", ".hidden", "a/.b", "a b", "é", "a\n", "a\\b",
     "x" * 201, "/".join(["x" * 100] * 10)],
)  # fmt: skip
def test_illegal_names(name: str) -> None:
    with pytest.raises(Invalid):
        names.check_name(name)


@given(st.integers(0, 10**20 - 1), st.integers(0, 10**20 - 1))
def test_order_of_names_is_order_of_numbers(first: int, second: int) -> None:
    assert (names.metadata(first) < names.metadata(second)) == (first < second)
    assert (names.claim(first) < names.claim(second)) == (first < second)


@pytest.mark.parametrize("number", [-1, 10**20])
def test_numbers_out_of_range_are_refused(number: int) -> None:
    with pytest.raises(Invalid):
        names.checkpoint_folder(number)


def test_names_are_those_of_the_layout() -> None:
    assert names.metadata(42) == "chk-00000000000000000042/_metadata"
    assert names.exclusive_file(42, "slot-0", "ab") == "chk-00000000000000000042/slot-0-ab"
    assert names.shared_file(42, "slot 0", "ab") == "shared/00000000000000000042-slot~200-ab"
    assert names.claim(7) == "owner-00000000000000000007"
    assert names.owner_record(7, "start", "ab") == "owner-00000000000000000007.start-ab"
    assert names.owner_record(7, "result", "ab") == "owner-00000000000000000007.result-ab"


def test_every_built_name_is_taken_apart_again() -> None:
    exclusive = names.parse_checkpoint_object(names.exclusive_file(3, "x", "t"))
    assert exclusive == names.CheckpointObject(3, shared=False, is_metadata=False)
    shared = names.parse_checkpoint_object(names.shared_file(3, "_metadata", "t"))
    assert shared == names.CheckpointObject(3, shared=True, is_metadata=False)
    commit_point = names.parse_checkpoint_object(names.metadata(3))
    assert commit_point == names.CheckpointObject(3, shared=False, is_metadata=True)
    assert names.parse_owner(names.claim(9)) == names.OwnerRecord(9, None, "claim")
    kinds: tuple[names.RecordKind, ...] = ("start", "result", "held", "claimed")
    for kind in kinds:
        owner = names.parse_owner(names.owner_record(9, kind, "ab"))
        assert owner == names.OwnerRecord(9, "ab", kind)


@pytest.mark.parametrize("name", ["chk-1/x", "shared/x", "other", "owner-1", "chk-", "_metadata"])
def test_foreign_names_are_not_taken_apart(name: str) -> None:
    assert names.parse_checkpoint_object(name) is None
    assert names.writer_of(name) is None
    assert names.parse_owner(name) is None


def test_the_name_of_a_file_has_the_number_of_its_checkpoint() -> None:
    made = (names.exclusive_file, names.shared_file)
    assert [names.writer_of(make(7, "x", "t")) for make in made] == [7, 7]
    assert names.writer_of(names.metadata(7)) == 7


ANY_TEXT = st.text(max_size=200) | st.text("_~.-a1F", max_size=5)


@given(ANY_TEXT, ANY_TEXT)
def test_any_two_names_of_states_are_two_tables_that_every_tool_sees(a: str, b: str) -> None:
    def tables(name: str) -> list[str]:
        return [
            *(names.state_table(name, other) for other in (0, 1, 10)),
            *(names.operator_table(name, other) for other in (0, 1, 10)),
            *(names.timers_table(name, domain) for domain in ("event", "processing")),
        ]

    assert len({*tables(a), *tables(b)}) == (8 if a == b else 16)
    for table in tables(a):
        path = names.check_name(names.table_file(b, table, 0, 12))
        assert not any(part.startswith(("_", ".")) for part in path.split("/"))


def test_tables_are_those_of_the_layout() -> None:
    part = "part-00064-00002.parquet"
    assert names.table_file("a/b", names.state_table("_x y"), 64, 2) == f"a~2Fb/~5Fx~20y/{part}"
    assert names.table_file("u", names.timers_table("t", "event"), 64, 2) == (
        f"u/~timers/t/event/{part}"
    )
    assert names.table_file("u", names.operator_table("s", 1), 64, 2) == f"u/~operator/s~-1/{part}"
    exclusive = names.exclusive_table(42, "u/s/part", "ab")
    assert exclusive == "chk-00000000000000000042/ab/u/s/part"
    found = names.parse_checkpoint_object(exclusive)
    assert found == names.CheckpointObject(42, shared=False, is_metadata=False)
