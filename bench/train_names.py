"""Learn the weights that tell names of people and places from other capitalized words, from generated sentences.

Sentences are templates filled from the word lists; a third of the names in them are made up from syllables of others,
and lists are hidden for a part of the rest, so that the words around a name and its form count as much as the lists.
Nothing is downloaded. Writes src/deniable/masking/lexicon/name_weights.txt; the same seed gives the same file.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from deniable.masking import lexicon, names

OUT = Path(__file__).resolve().parents[1] / "src" / "deniable" / "masking" / "lexicon" / "name_weights.txt"
SENTENCES = 70_000
ROUNDS = 4
LEAST = 15  # hundredths below which a weight is left out
RARE = 8  # times that a feature was seen below which it is left out

TEMPLATES = """
{name} called about the results and asked for an appointment on {weekday}.
Spoke to {name} today; {given} will send the form.
Patient {name} was admitted with chest pain.
The patient, {name}, denies any allergies to {drug}.
{name} lives in {place} and works as a nurse.
{name} moved from {place} to {place} last year.
I met {given} at the office in {place}.
Referred by {title} {surname} for further tests.
{title} {surname} saw the patient and stopped {drug}.
Her daughter {given} lives nearby.
His wife {given} and son {given} were present.
Mother: {name}, father: {name}.
Contact: {name}, {place}
Next of kin {name} (sister)
Dear {title} {surname}, thank you for your letter.
Dear {given}, see you on {weekday}.
Best regards, {name}
Kind regards
{given}
Thanks, {given}
Signed by {name} in {place}, {country}.
{name} ({name}'s brother) will drive.
Born in {place}, {country}, she came here in 1990.
She was born in {place} and studied in {place}.
Travelled to {country} in {month} and returned via {place}.
Flight from {place} to {place} was delayed.
The shipment to {place} arrived on {weekday}.
Our office in {place} is closed.
He visited {place}, {place} and {place}.
Resident of {place} since 2004.
Moved near {place} after the operation.
According to {name}, the pain began in {month}.
{given} said that {given} had called.
Ask {given} to phone {name}.
{surname}, {given} was seen in clinic.
{given} {surname} and {given} {surname} are cousins.
Please forward this to {name} or {name}.
Interview with {name}, {job} of {org}.
{name}, the {job}, signed the contract with {org}.
{org} hired {name} as {job}.
{job} {name} resigned in {month}.
cc: {name}; {name}
From: {name}
To: {name}
Name: {name}
Employee: {name} Location: {place}
{name} - {place}
My name is {name} and I live in {place}.
This is {given} from {place}.
I am {name}.
Is {given} there? No, {given} is in {place}.
We thank {name} of {place} for her help.
Mr and Mrs {surname} were informed.
{caps} WAS ADMITTED TODAY.
{caps} called again.
Discussed with {caps} by phone.
Seen with {given}'s mother.
{given}'s results are back.
{surname}'s chart was reviewed.
The {surname} family moved to {place}.
Yesterday {given} fell at home in {place}.
Unfortunately {given} could not come.
Later that day {name} reported a headache.
When {given} arrived, {given} was asleep.
After the visit {title} {surname} wrote to {name}.
Son {given}, daughter {given}, both in {country}.
The accident happened between {place} and {place}.
She flew to {country} with {given}.
{name}, aged 45, from {place}
Witness {name} stated that the car was red.
Driver {name} of {place} was not hurt.
Tenant: {name}, landlord: {name}
Invoice for {name}, {place}, {country}
The claim of {name} was settled.
Teacher {surname} and pupil {given} agreed.
Neighbour {name} found him.
Uncle {given} and aunt {given} visited.
My husband {given} takes {drug}.
Grandmother {given} died in {place}.
He told {given} about {place}.
{initials} {surname} presented the paper.
{given} {initials} {surname} was elected.
Prof. {surname} from the University of {place} replied.
Сообщил пациент {name}, живёт в {place}.
Herr {surname} aus {place} rief an.
Frau {surname} wohnt in {place}.
Le patient {name} habite à {place}.
La señora {surname} vive en {place}.
El paciente {name} llegó de {place}.
Il paziente {name} abita a {place}.
Pan {surname} mieszka w {place}.
De heer {surname} woont in {place}.
{word} {word} from {name} {word} {word}.
{Word} {word} by {given}, {word} {word}.
{Word} {word} with {title} {surname} and {word} {word} {given}.
{Word} {word} to {place} {word} {word} only.
{Word} {word} in {place} this {month}.
{Word} {given} and {given} {word} the {word} by {weekday}?
The {surname} {word} is {word}.
Our {place} {word} was {word}.
{given} {word} the {Word} {word} in {place}.
{Word} from {name}: {word} never {word} in {place}.
{Word} adopted by the {surname} family.
{Word} for {surname} at {Word}.
Has {given} had {word} {acro}?
{Word} {word} by {given}. {Word}: {given}, {given}, {name}.
{Word} of the {product}, {name}, was {word}.
I {word} with {title} {name} on {weekday}.
My {acro}, {title} {name}, {word} rest.
Frau Dr. {surname} hat {word}.
Signora {surname} di {place} ha {word}.
Her {word} ({given}) is coming from {place}.
The {word}, a {Word}, bit {given}.
{name} from {Word} {word} it.
{name} started {word} in {place}.
{name}, {word}, {word} {Word} and {Word}.
{place} {word} fell; the {org} {word}.
She left {place} and {word} to {place}.
{name} {word} not {word}.
{given} is the {word} {word}.
{Word} {name} was {word}; {given} {word}.
Call {title} {surname} on {weekday}.
{Word} {title} {surname} {word} {word}.
{Word} {given} the {word}.
Email {name}, then phone {given}.
{Word} {word} was {word}. {Word} {title} {surname} about {word}.
{Word}: {name}
{Word} {Word}: {name}, {Word}: {place}
""".strip().splitlines()
OTHERS = """
Patient denies pain. No history of {eponym} disease.
Started {drug} and {drug} on {weekday}.
The {lang} translation is due in {month}.
Diagnosed with {eponym} disease in {month}.
Possible {eponym} syndrome; stop {drug}.
{org} sent the invoice for {product}.
Please update {product} before {weekday}.
{product} crashed twice on {weekday}.
New {product} license from {org}.
In {month} 2 patients left the study.
The {org} meeting is on {weekday}.
{phrase} is required for all staff.
{phrase}: see section 3.
Please read the {phrase} before you sign.
Department of {phrase}
See {phrase} and {phrase}.
History: {eponym} disease, hypertension, Type 2 Diabetes.
Allergies: {drug}, {drug}, Latex
Medication: {drug} 50 mg, {drug} as needed
She speaks {lang} and {lang}.
He is {lang} and reads {lang} newspapers.
{lang} food is served on {weekday}.
Good Friday and Easter Monday are holidays.
Happy Christmas and a good New Year!
{Word} the {word} was {word}.
{Word} and {word}, then {word}.
{Word}: {word} {word}
{Word} {word} {word} in {month}.
The {word} {word}. {Word} {word} {word}!
We {word} the {Word} Report of {org}.
Is the {word} {word}? Yes. No. Maybe.
{Word} {word}; {word} {word}. {Word} it {word}.
I think I will {word}. Mark the box. May we {word}?
Will you mark this? Grace period ends in {month}.
A bill was paid. Bill the customer in {month}.
Rose sharply in {month}. Hope this helps.
Will call again. May need surgery. Mark as done.
Frank discussion held. Rich in iron. Sunny on {weekday}.
Nice weather. Reading the report. Bath time. Mobile phone lost.
Turkey sandwich eaten. China plates broken. Long day. Young man.
Summer was hot. Dawn broke. Faith matters. Joy followed. Chase the invoice.
King size bed. White paint. Brown shoes. Green light. Black coffee.
Price list attached. Page 4 missing. Cook for 5 minutes. Baker street food.
Christian holidays. Buddhist temple. Jewish museum. Muslim community.
MRI and CT of the Head were normal. ECG: Sinus rhythm.
BP and HR stable. PLAN: stop {drug}. DNR form signed.
PAST MEDICAL HISTORY
FAMILY HISTORY: UNKNOWN
SOCIAL HISTORY: RETIRED, NON SMOKER
ASSESSMENT AND PLAN
Subject: {phrase} {phrase}
Re: {phrase}
Attn: {phrase} Department
Chief Complaint: {word} {word}
{job}s and {job}s met on {weekday}.
The {job} of {org} declined.
Our {Job} left in {month}.
Windows update failed on {weekday}; {product} works.
iPhone and Android apps of {org} are slow.
COVID and RSV tests negative. Vitamin D low.
Apgar score 9. Glasgow coma scale 15. Babinski negative.
The North entrance of the East Wing is closed.
Ward B, Room 12, Bed 4, Floor 3
Team A beat Team B.
Step 1: Open the File menu. Step 2: Click Save.
Dear Sir or Madam, please find the {Word} attached.
Dear Customer Service, my order is late.
Dear Hiring Manager, I apply as {Job}.
To whom it may concern: {Word} {word}.
Kind regards, Customer Support
Best regards, The {Word} Team
Heute ist {word}. Der Patient klagt über Schmerzen. Die Wunde heilt.
Die Untersuchung im Krankenhaus war gut. Das Ergebnis kommt am Montag.
Le patient va bien. La douleur a cessé. Il prend {drug}.
El paciente está bien. La cita es el lunes.
Пациент жалуется на боль. Назначен {drug}.
{Word} {word} {word} {Word}, {Word} and {Word}.
{Word} {word} in {Word}, {word} in {Word}.
{Word} {word} by {Word}, {word} {word}.
{Word} {word} via {product}, {word} {word}.
{Word} a {acro} of the {word}; {Word} will {word}.
The {Word} {Word} was {word}.
The {Word} {word} on {weekday}. {Word} {word} {word}.
{word} the {Word} and a {Word} {Word}.
{Word} {word} to {Word} {Word}.
{Word} until {Word}, back in Week 16.
My {Word} from {Word} {word}.
Ask {acro} about the {acro}.
{Word}: one {product}, near {Word} {acro}.
I {word}. I'd {word}. May I {word} {weekday} instead?
Good {Word}, the {word} in {Word} is {word}.
{acro} {word} and {Word} were {word}.
{Word} 3 of the {Word} {word} {Word} 2.
{Word} {word} for {Word} {Word}.
{Word} {word} {acro}. {acro}: {word}.
The {product} by {org} {word} the {Word}.
{Word} {word} as {Word} in {Word} {word}
Dans {word} le {word}. Les {word} de {word} sont {word}.
Am {word} ist der {Word} {word}. Die {Word} und der {Word}.
""".strip().splitlines()
LISTED = """
title: Dr., Dr, Mr., Mr, Mrs., Mrs, Ms., Ms, Miss, Prof., Nurse, Sir, Judge, Captain, Lt., Sgt., Rev., Prof
drug: Aspirin, Ibuprofen, Metformin, Lisinopril, Zoloft, Prozac, Lipitor, Xanax, Tylenol, Insulin, Warfarin,
  Penicillin, Amoxicillin, Ventolin, Nexium, Plavix, Humira, Ritalin, Codeine, Morphine, Prednisone, Omeprazole,
  Simvastatin
eponym: Parkinson's, Alzheimer's, Crohn's, Hodgkin's, Huntington's, Addison's, Cushing's, Graves', Down, Tourette,
  Lyme, Marfan, Asperger, Raynaud's, Bell's, Ménière's, Hashimoto's, Kawasaki, Sjögren's
weekday: Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday
month: January, February, March, April, May, June, July, August, September, October, November, December
lang: English, French, German, Spanish, Italian, Dutch, Russian, Chinese, Japanese, Arabic, Turkish, Polish, Greek,
  Hindi, Portuguese, Korean, American, British, Indian, European, African, Asian, Mexican, Canadian
job: manager, director, engineer, teacher, chairman, secretary, treasurer, accountant, analyst, lawyer
Job: Manager, Director, Engineer, Teacher, Chairman, Secretary, Treasurer, Accountant, Analyst, Lawyer
org: Microsoft, Google, Acme Holdings, General Hospital, City Council, World Bank, Red Cross, United Nations, First
  National Bank, Northern Insurance, Siemens, Toyota, Amazon, Novartis, Blue Shield, Health Authority, Ministry of
  Health, Supreme Court, European Commission, Oracle, Community Clinic, Central Pharmacy, Green Party, Data Protection
  Office, Delta Airlines, IKEA
product: Windows, Excel, Photoshop, Outlook, Android, Word, Python, Chrome, Safari, Teams, Galaxy, Corolla, Golf,
  Kindle, PowerPoint, Zoom, Slack, Linux, Alexa, Prime
phrase: Informed Consent, Privacy Policy, Annual Report, Terms and Conditions, Internal Medicine, Human Resources,
  Emergency Department, Intensive Care Unit, Customer Service, Quality Control, Physical Therapy, Public Health, Data
  Analysis, Risk Assessment, Board Meeting, Safety Plan, Computer Science, Main Entrance, Operating Room, Vital Signs,
  Follow Up, Blood Pressure, Credit Card, Purchase Order, Monthly Budget, Project Plan, Work Package, Sales Team
""".strip()
FILL = {
    slot: [one.strip() for one in words.split(",")]
    for slot, words in (entry.split(":", 1) for entry in LISTED.replace("\n  ", " ").splitlines())
}
Word = tuple[str, str]


def split_syllables(word: str) -> list[str]:
    """Pieces of a name that begin with a consonant, to make up others from."""
    pieces, piece = [], ""
    for i, sign in enumerate(word.lower()):
        piece += sign
        if sign in "aeiouyäöüéáíóú" and i + 1 < len(word) and word[i + 1].lower() not in "aeiouy":
            pieces.append(piece)
            piece = ""
    return [*pieces, piece] if piece else pieces


class Maker:
    """Draws the parts of sentences."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.given = [*lexicon.load_words("given_names")[:1500], *_world("g") * 3]
        self.surnames = [*lexicon.load_words("surnames")[:3000], *_world("s") * 4]
        self.places = [*lexicon.load_words("cities")[:1500], *_world("c") * 3, *_states()]
        self.countries = [one for one in lexicon.load_words("countries") if len(one) < 20]
        self.words = [one for one in lexicon.load_words("common") if len(one) > 2]
        self.first = [split_syllables(one) for one in self.given]
        self.last = [split_syllables(one) for one in self.surnames]
        self.towns = [split_syllables(one) for one in self.places if " " not in one]

    def make_up(self, among: list[list[str]]) -> str:
        """A word of no list: the beginning of one and the end of another."""
        one, two = self.rng.choice(among), self.rng.choice(among)
        made = (one[0] + two[-1] if len(two) > 1 else one[0] + "".join(two)).title()
        return made if len(made) > 2 else self.make_up(among)

    def draw(self, listed: list[str], syllables: list[list[str]]) -> str:
        """One of the list, or made up."""
        return self.make_up(syllables) if self.rng.random() < 0.33 else self.rng.choice(listed)

    def draw_given(self) -> str:
        """A given name."""
        return self.draw(self.given, self.first)

    def draw_surname(self) -> str:
        """A surname, perhaps doubled or with a particle."""
        one = self.draw(self.surnames, self.last)
        if self.rng.random() < 0.04:
            return f"{one}-{self.draw(self.surnames, self.last)}"
        return f"{self.rng.choice(['van', 'de', 'von', 'da', 'van der'])} {one}" if self.rng.random() < 0.03 else one

    def draw_name(self) -> str:
        """A name as people write it."""
        given, surname = self.draw_given(), self.draw_surname()
        forms = [f"{given} {surname}"] * 10 + [given, f"{given} {self.draw_given()} {surname}"]
        forms += [f"{given[0]}. {surname}", f"{given} {self.rng.choice('ABCDEFGHJKLMNPRSTW')}. {surname}"]
        return self.rng.choice(forms)

    def fill(self, slot: str) -> tuple[str, str]:
        """The text of a slot and its label."""
        if slot == "name":
            return self.draw_name(), "name"
        if slot == "caps":
            return f"{self.draw_given()} {self.draw_surname()}".upper(), "name"
        if slot in ("given", "surname"):
            return (self.draw_given() if slot == "given" else self.draw_surname()), "name"
        if slot == "initials":
            return self.rng.choice(["J.", "A. B.", "M.", "R. J.", "K."]), "name"
        if slot in ("place", "country"):
            listed = self.places if slot == "place" else self.countries
            return (self.draw(listed, self.towns) if slot == "place" else self.rng.choice(listed)), "place"
        if slot == "acro":
            return "".join(self.rng.choices("ABCDEFGHIKLMNOPRSTUVX", k=self.rng.choice([2, 3, 3, 4]))), ""
        if slot == "product" and self.rng.random() < 0.4:
            one, two = self.rng.sample(self.words, 2)
            return self.rng.choice([one[:5].title() + two[:4].title(), one[:4].title() + two[-3:]]), ""
        if slot in ("word", "Word"):
            word = self.rng.choice(self.words)
            return (word.title() if slot == "Word" else word), ""
        return self.rng.choice(FILL[slot]), ""

    def make_sentence(self) -> list[Word]:
        """A filled template as labelled words."""
        template = self.rng.choice(TEMPLATES if self.rng.random() < 0.6 else OTHERS)
        words: list[Word] = []
        for i, part in enumerate(template.replace("{", "\0").replace("}", "\0").split("\0")):
            text, label = self.fill(part) if i % 2 else (part, "")
            found, _ = names._split_words(text)
            words += [(word, label if word[0].isupper() else "") for word in found[2:-3]]
        return words


def _world(letter: str) -> list[str]:
    return [word for line in lexicon.load_words("world") if line[0] == letter for word in line.split()[1:]]


def _states() -> list[str]:
    return [line.split(" ", 1)[1] for line in lexicon.load_words("states")]


def list_examples(maker: Maker, count: int) -> Iterator[list[Word]]:
    """Texts of one to three sentences."""
    for _ in range(count):
        text: list[Word] = []
        for _ in range(maker.rng.choice([1, 1, 1, 2, 3])):
            text += maker.make_sentence()
        around = [(names._END, "")] * 3
        yield [*around[:2], *text, *around]


def train(seed: int = 11) -> dict[str, tuple[int, int]]:
    """The averaged weights of a perceptron with a margin, in hundredths, without those that hardly count."""
    maker = Maker(seed)
    hide_words(maker.rng)
    weights: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    summed: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    examples = list(list_examples(maker, SENTENCES))
    hidden = random.Random(seed + 1)
    seen: Counter[str] = Counter()
    step = 0
    for _ in range(ROUNDS):
        hidden.shuffle(examples)
        for example in examples:
            words = [word for word, _ in example]
            lowered = [word.lower() for word in words]
            before = ""
            for at in range(2, len(words) - 3):
                truth = example[at][1]
                if words[at][0].isupper() and names.is_candidate(words, lowered, at, before):
                    step += 1
                    features = names.list_features(words, lowered, at, before)
                    seen.update(features)
                    learn(weights, summed, features, truth, step)
                before = truth if hidden.random() < 0.9 else ""
    often = {feature: pair for feature, pair in weights.items() if seen[feature] >= RARE * ROUNDS}
    return average(often, summed, step)


def hide_words(rng: random.Random) -> None:
    """Leave out a part of the lists while learning: most ordinary words and many names of the world are in none."""
    classes = names.load_classes()
    for word in sorted(classes):
        if rng.random() < (0.25 if classes[word] == "x" else 0.15):
            del classes[word]
    names._is_ordinary.cache_clear()


def learn(
    weights: dict[str, list[float]], summed: dict[str, list[float]], features: list[str], truth: str, step: int
) -> None:
    """Move the weights toward the truth where a score is on the wrong side of its margin."""
    for i, kind in enumerate(names.KINDS):
        score = sum(weights[feature][i] for feature in features)
        target = 1.0 if truth == kind else -1.0
        if score * target < 1.0:
            for feature in features:
                weights[feature][i] += 0.1 * target
                summed[feature][i] += 0.1 * target * step


def average(weights: dict[str, list[float]], summed: dict[str, list[float]], steps: int) -> dict[str, tuple[int, int]]:
    """The mean of the weights over all steps."""
    found = {}
    for feature, pair in weights.items():
        means = [round(100 * (pair[i] - summed[feature][i] / steps)) for i in (0, 1)]
        if max(map(abs, means)) >= LEAST:
            found[feature] = (means[0], means[1])
    return found


if __name__ == "__main__":
    learned = train()
    lines = [f"{feature}\t{name}\t{place}" for feature, (name, place) in sorted(learned.items())]
    head = "# Weights of features for a name and for a place, in hundredths.\n# Source: bench/train_names.py.\n"
    OUT.write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"{len(lines)} weights")
