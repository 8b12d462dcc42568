"""The same as a Prefect flow: each command is a task, and exit code 2 stops the flow."""

import subprocess

from prefect import flow, task


@task
def run(*arguments: str) -> None:
    subprocess.run(["deniable", *arguments], check=True)


@flow
def release_every_month(policy: str, rows: str, others: str, out: str) -> None:
    run("policy", "check", policy)
    run("synthesize", "visits", "-p", policy, "--epsilon", "0.5", "--delta", "1e-7", "-o", out)
    run("attack", out, "--synthetic", "--original", rows, "--control", others, "-p", policy, "--fail-above", "0.05")


if __name__ == "__main__":
    release_every_month("policy.yaml", "visits.parquet", "last-year.parquet", "public.csv")
