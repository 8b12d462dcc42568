"""SCRAM beside scramp, an implementation of RFC 5802 by others: each side of the exchange checks the other."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramClient, ScramException, ScramMechanism

from deniable.errors import AccessRefused
from deniable.governance.scram import MECHANISM, ROUNDS, Exchange, ScramKeys, salt_of

PRINTABLE = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=60)
few = settings(max_examples=20, deadline=None)


def exchange(name: str, known: list[tuple[ScramKeys, int]], token: str) -> int:
    """Play one proof between scramp's client and our server; both must be content."""
    client, server = ScramClient([MECHANISM], name, token), Exchange(name, known)
    client.set_server_first(server.first(client.get_client_first().encode()).decode())
    holder, proof = server.final(client.get_client_final().encode())
    client.set_server_final(proof.decode())
    return holder


@few
@given(PRINTABLE, PRINTABLE)
def test_stored_keys_are_those_of_scramp(name, token):
    _, stored, server, rounds = ScramMechanism(MECHANISM).make_auth_info(token, ROUNDS, salt_of(name))
    assert ScramKeys.of(name, token) == ScramKeys(stored, server)
    assert rounds == ROUNDS


@few
@given(PRINTABLE, st.lists(PRINTABLE, min_size=2, max_size=3, unique=True), st.data())
def test_a_client_of_others_proves_any_token_of_a_name(name, tokens, data):
    known = [(ScramKeys.of(name, token), place) for place, token in enumerate(tokens)]
    place = data.draw(st.integers(0, len(tokens) - 1))
    assert exchange(name, known, tokens[place]) == place


def test_a_client_of_others_with_another_token_is_refused():
    known = [(ScramKeys.of("ana", "right"), 1)]
    assert exchange("ana", known, "right") == 1
    with pytest.raises(AccessRefused):
        exchange("ana", known, "wrong")


def test_a_server_that_does_not_know_the_token_is_refused_by_a_client_of_others():
    keys = ScramKeys.of("ana", "right")
    impostor = ScramKeys(keys.stored, ScramKeys.of("ana", "wrong").server)
    with pytest.raises(ScramException):
        exchange("ana", [(impostor, 1)], "right")
