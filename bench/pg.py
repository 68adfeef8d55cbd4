"""The record in PostgreSQL beside SQLite: the floor is pgbench with one row changed per commit, on the same server."""

import os
import pathlib
import re
import statistics
import subprocess

import postgres


def floor(server, seconds, clients):
    """Commits a second of a bare client: a transaction of one UPDATE, prepared."""
    script = server.directory / "one.sql"
    script.write_text("\\set i random(1, 1000)\nUPDATE floor SET n = n + 1 WHERE id = :i;\n")
    out = subprocess.run([server.bin / "pgbench", "-n", "-M", "prepared", "-f", script, "-c", str(clients), "-j", "1", "-T",
                          str(max(1, round(seconds))), "-h", server.directory, "-U", "postgres", "floor"],
                         capture_output=True, text=True).stdout
    return float(re.search(r"tps = ([\d.]+)", out)[1])


def multiply_lease(server, url, rows):
    """Copies of one ended lease, older and with ids of their own."""
    columns = [row[0] for row in server.sql(url, "SELECT column_name FROM information_schema.columns WHERE table_name = "
                                                 "'environment_leases' ORDER BY ordinal_position")]
    values = ["gen_random_uuid()::text" if c == "id" else f"m.{c} - i * 1000" if c.endswith("_at") else f"m.{c}" for c in columns]
    server.sql(url, f"INSERT INTO environment_leases ({', '.join(columns)}) SELECT {', '.join(values)} FROM generate_series(1, {rows}) i, "
                    "(SELECT * FROM environment_leases WHERE status = 'released' AND idempotency_key IS NULL LIMIT 1) m; "
                    "ANALYZE environment_leases;")


def bench(report, run, scratch):
    report.group("postgres")
    os.chmod(scratch, 0o711)
    with postgres.Postgres(pathlib.Path(scratch) / "pg", durable=True) as server:
        server.create("floor")
        server.sql("floor", "CREATE TABLE floor (id BIGINT PRIMARY KEY, n BIGINT); "
                            "INSERT INTO floor SELECT i, 0 FROM generate_series(1, 1000) i")
        for clients in (1, 16):
            tps = statistics.median(floor(server, run.options.seconds, clients) for _ in range(run.options.repeats))
            report.figure(f"floor: pgbench, one UPDATE per commit, {clients} clients", tps, "/s")
        url = server.create("bench")
        with run.Scene({"BERTH_DATABASE": url}) as scene, run.Scene() as beside:
            s = run.repeat({1: scene.cycles(1), 16: scene.cycles(16), "sqlite 1": beside.cycles(1), "sqlite 16": beside.cycles(16)})
            report.rate("acquire + release, 1 connection", s[1])
            report.rate("acquire + release, 16 connections", s[16])
            report.rate("the same on SQLite, 1 connection", s["sqlite 1"])
            report.rate("the same on SQLite, 16 connections", s["sqlite 16"])
            multiply_lease(server, url, run.options.rows)
            s = run.repeat({16: scene.cycles(16)})
            report.rate(f"16 connections, {run.options.rows:,} ended leases", s[16])
