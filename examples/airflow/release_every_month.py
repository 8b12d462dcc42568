"""An Airflow DAG: check the policy, synthesize, attack; the file is published only if the attack stays below 5%."""

from datetime import datetime

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import dag

POLICY = "/srv/deniable/policy.yaml"
ROWS = "/srv/deniable/visits.parquet"
OTHERS = "/srv/deniable/last-year.parquet"
FILE = "/srv/made/visits-{{ ds }}.csv"


@dag(schedule="@monthly", start_date=datetime(2027, 1, 1), catchup=False)
def release_every_month():
    check = BashOperator(task_id="check", bash_command=f"deniable policy check {POLICY}")
    make = BashOperator(
        task_id="synthesize",
        bash_command=f"deniable synthesize visits -p {POLICY} --epsilon 0.5 --delta 1e-7 -o {FILE}",
    )
    attack = BashOperator(
        task_id="attack",
        bash_command=f"deniable attack {FILE} --synthetic --original {ROWS} --control {OTHERS} -p {POLICY}"
        " --fail-above 0.05",
    )
    publish = BashOperator(task_id="publish", bash_command=f"mv {FILE} {FILE}.release.json /srv/www/")
    check >> make >> attack >> publish


release_every_month()
