"""A dbt model in Python: one charged question, stored as a table. The same run twice is charged once."""

import os

import deniable


def model(dbt, _session):
    dbt.config(materialized="table", packages=["deniable", "pandas"])
    server = deniable.connect(os.environ["DENIABLE_URL"], os.environ["DENIABLE_TOKEN"])
    question = "SELECT payer, COUNT(*) AS visits FROM visits GROUP BY payer"
    return server.query(question, epsilon=0.2, request="visits_by_payer-2026-11").to_pandas()
