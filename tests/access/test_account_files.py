"""Reading the files of access control, and changing them line by line."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketlet.access.account_edits import Value, with_account, with_global_addresses, without_account
from rocketlet.access.account_files import FileError, joined, read_accounts, read_credentials
from rocketlet.access.accounts import DENY, PUB, SUB
from rocketlet.remoting.protocol.configuration import DataVersion
from tests.support.memory_folder import account, accounts
from tests.support.properties import examples

# In the form of RocketMQ's own example.
EXAMPLE = """\
# who may do what
globalWhiteRemoteAddresses:
  - 10.10.103.*
  # the second office
  - 192.168.0.*   # lan

accounts:
  # the web shop
  - accessKey: webshop
    secretKey: 12345678   # to be changed
    whiteRemoteAddress:
    admin: false
    defaultTopicPerm: DENY
    defaultGroupPerm: SUB
    topicPerms:
      - orders=DENY
      - carts=PUB|SUB
      # read only
      - prices=SUB
    groupPerms:
      # a group, not its retry topic
      - shop=PUB|SUB

  - accessKey: operator
    secretKey: 0123456789
    whiteRemoteAddress: 192.168.1.*
    # may do everything
    admin: true
"""
VERSION = DataVersion(3, 1_700_000_000_000)


def test_rocketmqs_account_file_is_read() -> None:
    file = read_accounts("plain_acl.yml", EXAMPLE.encode())
    shop, operator = file.accounts
    assert shop.permissions == {"orders": DENY, "carts": PUB | SUB, "prices": SUB, "%RETRY%shop": PUB | SUB}
    assert (shop.default_topic, shop.default_group, shop.admin, bool(shop.addresses)) == (DENY, SUB, False, False)
    assert (operator.admin, operator.secret_key, operator.addresses.text) == (True, "0123456789", "192.168.1.*")
    assert [one.text for one in file.everywhere] == ["10.10.103.*", "192.168.0.*"]
    assert file.warnings == ()
    assert operator.place == "plain_acl.yml line 24"


def test_an_accounts_secret_is_never_shown() -> None:
    (one, *_) = read_accounts("f", EXAMPLE.encode()).accounts
    assert "12345678" not in f"{one!r} {one} {one.secret!r}"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("accounts:\n- accessKey: a\n  secretKey: 12345678\n", "line 2: accessKey has 1 characters"),
        ("accounts:\n- accessKey: webshop\n  secretKey: hunter2"[:-1] + "\n", "line 3: secretKey has 6 characters"),
        ("accounts:\n- secretKey: 12345678\n", "line 2: an account without accessKey"),
        ("accounts:\n- accessKey: webshop\n", "line 2: an account without secretKey"),
        ("accounts:\n- webshop\n", "line 2: a map of"),
        ("accounts:\n  accessKey: webshop\n", "line 2: a list is needed"),
        ("accounts:\n- accessKey: [a]\n  secretKey: 12345678\n", "line 2: one value is needed"),
        (accounts(account("webshop", topics=("orders",))), "line 10: a permission is written topic=PUB|SUB"),
        (accounts(account("webshop", white="10.1")), "line 5: '10.1' is no address"),
        ("globalWhiteRemoteAddresses:\n- 10.1.2.x\n", "line 2: '10.1.2.x' is no address"),
        ("accounts:\n- accessKey: webshop\n  accessKey: webshop\n", "line 3: accessKey is there twice"),
        ("accounts: [\n", "line 2: "),
        ("accounts:\n\t- a\n", "line 2: "),
        ("a: &x [1]\naccounts: *x\n", "line 2: an alias"),
        ("[" * 5000, ": "),
    ],
)
def test_nonsense_is_reported_with_its_line(text: str, says: str) -> None:
    with pytest.raises(FileError) as caught:
        read_accounts("plain_acl.yml", text.encode())
    assert str(caught.value).startswith("plain_acl.yml")
    assert says in str(caught.value)
    assert "12345678" not in str(caught.value)
    assert "hunter" not in str(caught.value)


def test_what_rocketmq_ignores_is_a_warning_that_shows_no_value() -> None:
    text = accounts(account("webshop", topic="PUBB", topics=("orders=pub",))).replace("  admin: false", "  admn: hush")
    file = read_accounts("plain_acl.yml", text.encode())
    assert file.accounts[0].permissions == {"orders": DENY}
    assert file.accounts[0].default_topic == DENY
    assert len(file.warnings) == 3
    assert "did you mean admin?" in file.warnings[0]
    assert "hush" not in "".join(file.warnings)


def test_the_first_account_of_a_name_counts() -> None:
    first = read_accounts("acl/a.yml", accounts(account("webshop", topic="PUB")).encode())
    second = read_accounts("plain_acl.yml", accounts(account("webshop", admin=True)).encode())
    rules, warnings = joined([first, second])
    assert not rules.accounts["webshop"].admin
    assert warnings == ["plain_acl.yml line 3: account webshop exists already, at acl/a.yml line 3, and that one wins"]


def test_tools_credentials() -> None:
    found = read_credentials("tools.yml", b"accessKey: operator\nsecretKey: correct-horse\n")
    assert (found.access_key, found.secret_key) == ("operator", "correct-horse")
    assert "correct-horse" not in repr(found)
    with pytest.raises(FileError, match="are needed"):
        read_credentials("tools.yml", b"accessKey: operator\n")


def lines_changed(before: str, after: bytes) -> list[str]:
    """Lines of the old file that are not in the new one."""
    left = after.decode().split("\n")
    return [line for line in before.split("\n") if line not in left]


def test_only_the_changed_lines_are_touched() -> None:
    values: dict[str, Value] = {"defaultGroupPerm": "DENY", "secretKey": "new: #secret", "topicPerms": ["orders=SUB"]}
    edited = with_account("f", EXAMPLE.encode(), "webshop", values, VERSION)
    assert lines_changed(EXAMPLE, edited) == [
        "    secretKey: 12345678   # to be changed",
        "    defaultGroupPerm: SUB",
        "      - orders=DENY",
        "      - carts=PUB|SUB",
        "      # read only",
        "      - prices=SUB",
    ]
    shop, operator = read_accounts("f", edited).accounts
    assert (shop.secret_key, shop.default_group, shop.permissions) == (
        "new: #secret",
        DENY,
        {"orders": SUB, "%RETRY%shop": PUB | SUB},
    )
    assert operator.admin
    assert read_accounts("f", edited).version == VERSION


def test_adding_appends_an_account_and_deleting_leaves_the_others_alone() -> None:
    added = with_account("f", EXAMPLE.encode(), "newcomer", {"secretKey": "battery-staple", "admin": False}, VERSION)
    assert lines_changed(EXAMPLE, added) == []
    assert [one.access_key for one in read_accounts("f", added).accounts] == ["webshop", "operator", "newcomer"]
    deleted = without_account("f", added, "webshop", VERSION)
    assert [one.access_key for one in read_accounts("f", deleted).accounts] == ["operator", "newcomer"]
    assert b"# may do everything" in deleted


def test_an_empty_list_clears_the_permissions() -> None:
    edited = with_account("f", EXAMPLE.encode(), "webshop", {"topicPerms": [], "groupPerms": []}, VERSION)
    assert read_accounts("f", edited).accounts[0].permissions == {}


def test_global_addresses() -> None:
    edited = with_global_addresses("f", EXAMPLE.encode(), ["10.0.0.7", "*"], VERSION)
    assert [one.text for one in read_accounts("f", edited).everywhere] == ["10.0.0.7", "*"]
    assert b"# the web shop" in edited


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "accounts:\n", "accounts: []\n", "dataVersion:\n- counter: 1\n"]
)
def test_the_first_account_is_added_to_an_empty_file(text: str) -> None:
    edited = with_account("f", text.encode(), "newcomer", {"secretKey": "battery-staple"}, VERSION)
    assert [one.access_key for one in read_accounts("f", edited).accounts] == ["newcomer"]
    assert read_accounts("f", edited).version == VERSION


def test_a_file_in_flow_style_is_rewritten() -> None:
    text = "accounts: [{accessKey: webshop, secretKey: 12345678}, {accessKey: operator, secretKey: 12345678}]\n"
    edited = with_account("f", text.encode(), "webshop", {"secretKey": "battery-staple"}, VERSION)
    assert [one.secret_key for one in read_accounts("f", edited).accounts] == ["battery-staple", "12345678"]


def test_windows_line_endings_are_kept() -> None:
    edited = with_account("f", EXAMPLE.replace("\n", "\r\n").encode(), "webshop", {"admin": True}, VERSION)
    assert b"\n" not in edited.replace(b"\r\n", b"")
    assert read_accounts("f", edited).accounts[0].admin


def test_a_damaged_file_is_not_edited() -> None:
    with pytest.raises(FileError):
        with_account("f", b"accounts: [\n", "webshop", {"admin": True}, VERSION)


_word = st.text(alphabet="abcXYZ019%_-", min_size=1, max_size=8)
_key = st.text(alphabet="abcXYZ019:#'\"{}[],&*!|>-@`", min_size=7, max_size=12)
_values = st.fixed_dictionaries(
    {"secretKey": _key},
    optional={
        "admin": st.booleans(),
        "defaultTopicPerm": st.sampled_from(["DENY", "PUB", "SUB", "PUB|SUB"]),
        "defaultGroupPerm": st.sampled_from(["DENY", "SUB"]),
        "whiteRemoteAddress": st.sampled_from(["", "*", "10.1.2.*", "10.1.2.{3,4}"]),
        "topicPerms": st.lists(_word.map(lambda word: f"{word}=PUB"), max_size=4, unique=True),
        "groupPerms": st.lists(_word.map(lambda word: f"{word}=SUB"), max_size=4, unique=True),
    },
)


@settings(max_examples=examples(20))
@given(st.lists(st.tuples(st.sampled_from(["webshop", "operator", "newcomer", "visitor-1"]), _values), max_size=6))
def test_any_sequence_of_edits_leaves_the_requested_accounts(changes: list[tuple[str, dict[str, Value]]]) -> None:
    text = EXAMPLE.encode()
    wanted: dict[str, dict[str, Value]] = {}
    for key, values in changes:
        text = with_account("f", text, key, values, VERSION)
        wanted[key] = {**wanted.get(key, {}), **values}
    found = {one.access_key: one for one in read_accounts("f", text).accounts}
    assert set(found) == {"webshop", "operator", *wanted}
    for key, values in wanted.items():
        assert found[key].secret_key == values["secretKey"]
        if "admin" in values:
            assert found[key].admin == values["admin"]
        if "topicPerms" in values:
            named = {name for name in found[key].permissions if not name.startswith("%RETRY%")}
            assert named >= {str(one).partition("=")[0] for one in values["topicPerms"]} - {"%RETRY%"}  # type: ignore[union-attr]
    assert b"# who may do what" in text
