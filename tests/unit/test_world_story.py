"""What is planted in the worlds is really there, and what should be ordinary is ordinary."""

from __future__ import annotations

import re
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest

from deniable import world
from deniable.world.county import BROKEN
from deniable.world.hospital import GOVERNOR
from deniable.world.salaries import JOBS, PROPORTIONS


def frames(kind: str, people: int, seed: int = world.SEED) -> dict[str, pd.DataFrame]:
    return {name: table.to_pandas() for name, table in world.make(kind, people, seed).items()}


@pytest.fixture(scope="module")
def town() -> dict[str, pd.DataFrame]:
    return frames("hospital", 54_000)


@pytest.fixture(scope="module")
def county() -> pd.DataFrame:
    """Many visits, for effects in small groups."""
    visits = frames("hospital", 400_000)["visits"]
    visits["age"] = (pd.Timestamp(2026, 1, 1) - pd.to_datetime(visits["birth_date"])).dt.days // 365.25
    visits["nights"] = (pd.to_datetime(visits["discharge"]) - pd.to_datetime(visits["admission"])).dt.days
    return visits


@pytest.mark.parametrize(("people", "seed"), [(54_000, world.SEED), (54_000, 1), (100, 2), (150_000, 3)])
def test_the_governor_is_found_by_zip_birth_date_and_sex(people: int, seed: int) -> None:
    made = frames("hospital", people, seed)
    voters, visits = made["voters"], made["visits"]
    town = voters[voters["zip"].astype(int) <= 69507]
    same_day = town[town["birth_date"] == GOVERNOR.birth_date]
    assert len(same_day) == 6
    men = same_day[same_day["sex"] == "M"]
    assert len(men) == 3
    assert men.loc[men["zip"] == GOVERNOR.zip, "name"].tolist() == [GOVERNOR.name]
    linked = visits[
        (visits["zip"] == GOVERNOR.zip)
        & (visits["birth_date"] == GOVERNOR.birth_date)
        & (visits["sex"] == GOVERNOR.sex)
    ]
    assert linked["patient_id"].nunique() == 1
    assert ((linked["diagnosis"] == GOVERNOR.diagnosis) & (linked["admission"] == GOVERNOR.admission)).any()
    truth = made["truth"].set_index("patient_id")["voter_id"]
    his = voters.loc[voters["name"] == GOVERNOR.name, "voter_id"].item()
    assert truth[linked["patient_id"].iloc[0]] == his


def test_a_village_has_no_governor() -> None:
    assert GOVERNOR.name not in set(frames("hospital", 99)["voters"]["name"])


def test_zip_birth_date_and_sex_single_out_most_of_the_town(town: dict[str, pd.DataFrame]) -> None:
    voters = town["voters"]
    assert voters["zip"].nunique() == 7
    unique = ~voters.duplicated(["zip", "birth_date", "sex"], keep=False)
    assert 0.82 < unique.mean() < 0.90
    assert (~voters.duplicated(["zip", "sex"], keep=False)).mean() == 0


def test_a_larger_population_has_more_zip_codes_and_stays_exposed() -> None:
    voters = frames("hospital", 200_000)["voters"]
    assert voters["zip"].nunique() == 200_000 // 7714
    assert (~voters.duplicated(["zip", "birth_date", "sex"], keep=False)).mean() > 0.8


def test_every_link_of_the_truth_joins_a_voter_to_an_own_visit(town: dict[str, pd.DataFrame]) -> None:
    both = town["truth"].merge(town["voters"], on="voter_id").merge(town["visits"], on="patient_id")
    assert len(town["truth"]) == town["truth"]["patient_id"].nunique() == town["truth"]["voter_id"].nunique()
    assert set(town["truth"]["voter_id"]) <= set(town["voters"]["voter_id"])
    assert set(town["truth"]["patient_id"]) <= set(town["visits"]["patient_id"])
    for column in ("zip", "birth_date", "sex"):
        assert (both[f"{column}_x"] == both[f"{column}_y"]).all()


def test_some_patients_are_not_on_the_roll(town: dict[str, pd.DataFrame]) -> None:
    listed = town["visits"].drop_duplicates("patient_id")["patient_id"].isin(town["truth"]["patient_id"])
    assert 0.90 < listed.mean() < 0.95


def test_a_patient_is_one_person_in_all_visits(town: dict[str, pd.DataFrame]) -> None:
    persons = town["visits"].groupby("patient_id")
    for column in ("zip", "birth_date", "sex", "ethnicity", "medical_record_number", "phone", "email", "ssn"):
        assert (persons[column].nunique() == 1).all()
    assert town["visits"]["ssn"].nunique() == town["visits"]["phone"].nunique() == persons.ngroups
    assert set(town["visits"]["diagnosis"]) == set(town["diagnoses"]["code"])


def test_numbers_come_from_ranges_that_are_given_to_nobody(town: dict[str, pd.DataFrame]) -> None:
    visits = town["visits"]
    assert visits["ssn"].str.fullmatch(r"9\d\d-(0[1-9]|[1-4]\d)-(?!0000)\d{4}").all()
    assert visits["phone"].str.fullmatch(r"\(99\d\) [2-9]\d\d-\d{4}").all()
    assert visits["email"].str.endswith("@example.org").all()
    assert visits["zip"].str.match("69[5-9]").all()


def test_two_notes_in_five_hide_an_identifier(town: dict[str, pd.DataFrame]) -> None:
    notes = town["visits"]["note"]
    phones = notes.str.contains(r"\(99\d\) \d{3}-\d{4}")
    assert phones.mean() == pytest.approx(0.15, abs=0.01)
    assert notes.str.contains(r"\b9\d\d-\d\d-\d{4}").mean() == pytest.approx(0.05, abs=0.01)
    hidden = notes.str.contains(r"\d{4}|Patient [A-Z]")
    assert hidden.mean() == pytest.approx(0.40, abs=0.015)
    row = town["visits"][phones].iloc[0]
    assert re.escape(row["phone"]) in re.escape(row["note"])


def test_dates_are_in_order(town: dict[str, pd.DataFrame]) -> None:
    visits, voters = town["visits"], town["voters"]
    assert (visits["admission"] <= visits["discharge"]).all()
    assert pd.to_datetime(visits["admission"]).dt.year.eq(2025).all()
    assert (voters["registered"] > voters["birth_date"]).all()
    assert (pd.to_datetime(voters["registered"]) < pd.Timestamp(2026, 1, 1)).all()


def test_margins_of_the_town_are_ordinary(town: dict[str, pd.DataFrame]) -> None:
    voters = town["voters"]
    assert voters["sex"].eq("F").mean() == pytest.approx(0.515, abs=0.01)
    age = (pd.Timestamp(2026, 1, 1) - pd.to_datetime(voters["birth_date"])).dt.days / 365.25
    assert age.min() > 17.99
    assert age.max() < 101.1
    assert 44 < age.mean() < 52
    assert 0.6 < len(town["visits"]) / len(voters) < 1.2
    assert voters["name"].nunique() > 0.9 * len(voters)


def test_diagnosis_depends_on_age_and_sex(county: pd.DataFrame) -> None:
    births = county[county["diagnosis"] == "O80"]
    assert births["sex"].eq("F").all()
    assert births["age"].lt(60).all()
    assert county.loc[county["diagnosis"].isin(["N40", "C61"]), "sex"].eq("M").all()
    ages = county.groupby("diagnosis")["age"].mean()
    assert ages["G30.9"] > 75 > 60 > ages["G43.9"]


def test_charges_grow_with_the_stay_and_the_stay_with_age(county: pd.DataFrame) -> None:
    logs = np.log(county["charge"])
    assert np.corrcoef(county["nights"], county["charge"])[0, 1] > 0.6
    assert logs.groupby(county["nights"].clip(upper=6)).mean().is_monotonic_increasing
    pneumonia = county[county["diagnosis"] == "J18.9"]
    assert (
        pneumonia.loc[pneumonia["age"] >= 75, "nights"].mean()
        > 1.3 * pneumonia.loc[pneumonia["age"] < 45, "nights"].mean()
    )


def excess(visits: pd.DataFrame) -> pd.Series:
    """Log charge over what the diagnosis and the stay explain."""
    logs = np.log(visits["charge"])
    return logs - logs.groupby([visits["diagnosis"], visits["nights"]]).transform("mean")


def test_unequal_charges_show_only_where_three_attributes_meet(county: pd.DataFrame) -> None:
    rest = excess(county)
    old, hispanic, women = county["age"] >= 61, county["ethnicity"] == "Hispanic", county["sex"] == "F"
    assert rest[old & hispanic & women].mean() - rest[old & ~hispanic & women].mean() == pytest.approx(
        np.log(1.25), abs=0.03
    )
    assert rest[old & hispanic & ~women].mean() - rest[old & ~hispanic & ~women].mean() == pytest.approx(
        np.log(0.75), abs=0.03
    )
    for one, two in ((old, hispanic), (hispanic, women), (old, women)):
        assert abs(rest[one & two].mean() - rest.mean()) < 0.09
    young = ~old & (county["age"] < 59)
    assert abs(rest[young & hispanic & women].mean() - rest[young & ~hispanic & women].mean()) < 0.02


def test_depression_is_missed_in_black_men_of_middle_age(county: pd.DataFrame) -> None:
    depressed = county["diagnosis"] == "F32.9"
    middle, men, black = county["age"].between(31, 43), county["sex"] == "M", county["ethnicity"] == "Black"
    assert depressed[middle & men & black].mean() < 0.5 * depressed[middle & men & ~black].mean()
    assert depressed[middle & ~men & black].mean() == pytest.approx(depressed[middle & ~men & ~black].mean(), rel=0.12)


def test_the_payroll_has_the_proportions_of_the_worked_example() -> None:
    counted = frames("salaries", 5469)["salaries"]["job"].value_counts()
    assert [counted[job] for job in JOBS] == list(PROPORTIONS)


@pytest.mark.parametrize("people", [1, 97, 1000, 70_000])
def test_job_codes_keep_their_proportions_at_every_size(people: int) -> None:
    counted = frames("salaries", people)["salaries"]["job"].value_counts().reindex(JOBS, fill_value=0)
    assert counted.sum() == people
    for job, share in zip(JOBS, PROPORTIONS, strict=True):
        assert abs(counted[job] - people * share / 5469) <= 1


def test_pay_depends_on_job_and_seniority_and_for_some_women_on_sex() -> None:
    staff = frames("salaries", 300_000)["salaries"]
    staff["years"] = (pd.Timestamp(2026, 1, 1) - pd.to_datetime(staff["hired"])).dt.days // 365.25
    staff["excess"] = np.log(staff["salary"]) - np.log(staff["salary"]).groupby(
        [staff["job"], staff["department"], staff["years"]]
    ).transform("mean")
    means = staff.groupby("job")["salary"].mean()
    assert means["administration"] > means["faculty"] > means["athletics"] > means["staff"] * 0.9
    assert np.corrcoef(staff["years"], np.log(staff["salary"]))[0, 1] > 0.3

    def gap(rows: pd.Series) -> float:
        of = staff[rows]
        return float(of.loc[of["sex"] == "F", "excess"].mean() - of.loc[of["sex"] == "M", "excess"].mean())

    athletics, long_served = staff["job"] == "athletics", staff["years"] >= 10
    assert gap(athletics & long_served) == pytest.approx(np.log(0.85), abs=0.03)
    assert abs(gap(athletics & (staff["years"] < 9))) < 0.03
    assert abs(gap(~athletics)) < 0.01


def test_the_survey_has_its_margins_and_its_planted_corner() -> None:
    answers = frames("survey", 200_000)["survey"]
    drugs = answers["used_drugs"] == "yes"
    assert drugs.mean() == pytest.approx(0.20, abs=0.01)
    young, men, north = answers["age_group"] == "18-24", answers["sex"] == "M", answers["region"] == "North"
    assert drugs[young & men & north].mean() == pytest.approx(1.5 * drugs[young & ~(men & north)].mean(), rel=0.06)
    assert drugs[young & ~men & north].mean() == pytest.approx(drugs[young & ~men & ~north].mean(), rel=0.06)
    assert answers["income"].isna().mean() == pytest.approx(0.05, abs=0.005)
    means = answers.groupby("education")["income"].mean()
    assert means["none"] < means["school"] < means["college"] < means["degree"] < means["doctorate"]
    assert answers[["income", "satisfaction"]].corr().iloc[0, 1] > 0.25
    pages = answers["favorite_page"].value_counts()
    assert len(pages) > 950
    assert pages.iloc[0] > 20 * pages.iloc[-1]


@pytest.fixture(scope="module")
def ratings() -> dict[str, pd.DataFrame]:
    return frames("ratings", 6000)


def test_ratings_have_long_tails_and_no_doubles(ratings: dict[str, pd.DataFrame]) -> None:
    rows = ratings["ratings"]
    assert not rows.duplicated(["viewer_id", "film_id"]).any()
    assert set(rows["film_id"]) <= set(ratings["films"]["film_id"])
    activity = rows["viewer_id"].value_counts()
    assert 480_000 * activity.mean() == pytest.approx(100e6, rel=0.08)
    assert activity.mean() > 1.6 * activity.median()
    films = rows["film_id"].value_counts()
    assert films.iloc[:500].sum() > 0.25 * len(rows)
    assert films.median() < 0.2 * films.iloc[0]
    assert rows["rating"].between(1, 5).all()
    assert 3.2 < rows["rating"].mean() < 3.9


def test_everyone_likes_one_genre_better(ratings: dict[str, pd.DataFrame]) -> None:
    rows = ratings["ratings"].merge(ratings["films"], on="film_id")
    rows["rest"] = rows["rating"] - rows.groupby("film_id")["rating"].transform("mean")
    rows["rest"] -= rows.groupby("viewer_id")["rest"].transform("mean")
    busy = rows.groupby("viewer_id").filter(lambda of: len(of) > 800)
    best = busy.groupby(["viewer_id", "genre"])["rest"].mean().groupby("viewer_id").max()
    assert best.mean() > 0.25


def test_few_ratings_single_a_viewer_out(ratings: dict[str, pd.DataFrame]) -> None:
    rows = ratings["ratings"].assign(day=pd.to_datetime(ratings["ratings"]["day"]))
    by_film = dict(list(rows.groupby("film_id")))
    generator = np.random.default_rng(1)
    active = rows.groupby("viewer_id").filter(lambda of: len(of) >= 8)
    alone = 0
    for viewer in generator.choice(active["viewer_id"].unique(), 40, replace=False):
        known = rows[rows["viewer_id"] == viewer].sample(8, random_state=1)
        candidates: dict[int, int] = {}
        for film, day in zip(known["film_id"], known["day"], strict=True):
            of = by_film[film]
            for other in of.loc[(of["day"] - day).abs().dt.days <= 14, "viewer_id"]:
                candidates[other] = candidates.get(other, 0) + 1
        alone += sum(count >= 6 for count in candidates.values()) == 1
    assert alone >= 39


def test_rides_gather_at_hotspots_and_a_few_are_alone() -> None:
    made = frames("taxi", 20_000)
    rides, spots = made["rides"], made["hotspots"]
    near = np.zeros(len(rides), dtype=bool)
    for latitude, longitude in zip(spots["latitude"], spots["longitude"], strict=True):
        for end in ("pickup", "dropoff"):
            near |= (rides[f"{end}_latitude"] - latitude).abs().lt(0.0015) & (
                rides[f"{end}_longitude"] - longitude
            ).abs().lt(0.0015)
    assert near.mean() > 0.9
    cells = rides["pickup_latitude"].round(2).astype(str) + rides["pickup_longitude"].round(2).astype(str)
    lone = cells.map(cells.value_counts()) == 1
    assert 50 < lone.sum() < 0.01 * len(rides)
    assert (rides["pickup_time"] < rides["dropoff_time"]).all()
    assert (rides.loc[rides["payment"] == "cash", "tip"] == 0).all()


def test_parties_from_the_stadium_at_night_pay_in_cash() -> None:
    rides = frames("taxi", 100_000)["rides"]
    stadium = (rides["pickup_latitude"] - 44.961).abs().lt(0.0013) & (rides["pickup_longitude"] + 100.017).abs().lt(
        0.0013
    )
    hour = rides["pickup_time"].dt.hour
    night, party, cash = (hour >= 20) | (hour < 5), rides["passengers"] >= 3, rides["payment"] == "cash"
    assert cash[stadium & night & party].mean() > 0.55
    for two in (stadium & night & ~party, stadium & ~night & party, ~stadium & night & party):
        assert cash[two].mean() == pytest.approx(0.32, abs=0.03)


def test_in_the_county_friends_share_a_club_and_a_water_main_breaks_in_august() -> None:
    made = frames("county", 20_000)
    people, friends, calls = made["people"].set_index("person"), made["friends"], made["calls"]
    shared = (people.club[friends["one"]].to_numpy() == people.club[friends["other"]].to_numpy()).mean()
    by_chance = float((people.club.value_counts(normalize=True) ** 2).sum())
    assert shared > 1.4 * by_chance
    assert not friends.duplicated().any()
    assert (friends["one"] != friends["other"]).all()
    week = calls[calls["day"].between(BROKEN, BROKEN + timedelta(days=6))]
    water = (week["reason"] == "water").sum()
    assert 0.07 < water / len(calls) < 0.1
    assert water > 4 * (week["reason"] != "water").sum()
    used = set(made["people"]["block"])
    assert used < set(made["blocks"]["block"])
    assert len(used) == 448


def test_the_poll_of_the_county_tells_of_everybody_with_its_weights_alone() -> None:
    made = frames("county", 20_000)
    people, poll = made["people"].set_index("person"), made["poll"]
    old = people.age[poll["person"]].to_numpy() >= 65
    assert poll["weight"].sum() == pytest.approx(20_000, rel=0.03)
    assert ((poll["weight"] == 2) == old).all()
    riders = 0.7 * (people.age >= 65).mean() + 0.3 * (people.age < 65).mean()
    assert (poll["bus"] * poll["weight"]).sum() / 20_000 == pytest.approx(riders, abs=0.02)
    assert poll["bus"].mean() > riders + 0.03
