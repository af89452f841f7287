"""Clusters with encrypted messages, in which only processes with a certificate of the authority take part."""

import subprocess
from pathlib import Path

import dask
import distributed
import psutil
import pytest

from collapsium.pipeline import TLS, Model, fit
from collapsium.pipeline.cli.main import main
from collapsium.pipeline.executors.dask_cluster import _security
from collapsium.pipeline.executors.open import open_executor
from collapsium.storage.errors import AbsentError, ClusterError, OptionError
from tests.fits import bits
from tests.waiting import PATIENCE

pytestmark = pytest.mark.xdist_group("clusters")
SCRIPT = Path(__file__).parents[3] / "deploy/make-test-certificates"


def certificates(folder):
    subprocess.run([SCRIPT, folder], check=True, capture_output=True)
    return TLS(str(folder / "ca.pem"), str(folder / "cert.pem"), str(folder / "key.pem"))


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    return certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def cluster(tls):
    """The address of a local cluster that uses our certificates."""
    executor = open_executor("local", 1, tls=tls)
    yield executor._client.scheduler.address
    executor.close()


def test_a_fit_with_the_certificate__has_the_same_bits(small, tmp_path, tls, cluster):
    assert cluster.startswith("tls://127.0.0.1:")
    options = {"family": "lda", "topics": 3, "iterations": 2}
    expected = bits(fit(small[0], tmp_path / "calm", **options))
    words = ["fit", small[0], str(tmp_path / "run"), "--scheduler", cluster, "--quiet"]
    words += [part for name, value in options.items() for part in (f"--{name}", str(value))]
    words += ["--tls-ca", tls.ca, "--tls-cert", tls.cert, "--tls-key", tls.key]
    assert main(words) == 0
    assert bits(Model(tmp_path / "run")) == expected


def test_certificates_of_dasks_configuration__are_used(tls, cluster, monkeypatch):
    certificates = {"ca-file": tls.ca, "client": {"cert": tls.cert, "key": tls.key}}
    monkeypatch.setitem(
        dask.config.config["distributed"]["comm"], "tls", {**dask.config.get("distributed.comm.tls"), **certificates}
    )
    executor = open_executor(cluster)
    try:
        assert executor.collect([executor.submit(abs, -3)]) == [3]
    finally:
        executor.close()


def test_a_client_without_the_certificate__is_refused(cluster, tmp_path, monkeypatch):
    monkeypatch.setitem(_settings(), "distributed.comm.timeouts.connect", "3s")
    with pytest.raises(OptionError, match="expected `tls_ca`, `tls_cert` and `tls_key`"):
        open_executor(cluster)
    plain = cluster.replace("tls://", "tcp://")
    with pytest.raises(ClusterError, match="the scheduler cannot be reached"):
        open_executor(plain)
    with pytest.raises(ClusterError, match="the scheduler cannot be reached"):
        open_executor(cluster, tls=certificates(tmp_path / "others"))  # a certificate of another authority


def _settings():
    from collapsium.pipeline.executors import dask_cluster as clusters

    return clusters.SETTINGS


def test_a_local_cluster__uses_the_given_certificates(tls, cluster):
    with distributed.Client(cluster, security=_security(tls), timeout=PATIENCE) as client:
        assert len(client.scheduler_info()["workers"]) == 1
        assert client.submit(abs, -3).result() == 3


def test_a_local_cluster__refuses_other_processes_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setitem(_settings(), "distributed.comm.timeouts.connect", "3s")
    executor = open_executor("local", 1)
    try:
        assert executor.collect([executor.submit(abs, -3)]) == [3]
        address = executor._client.scheduler.address
        assert all(place.startswith("tls://127.0.0.1:") for place in (address, *executor._members.addresses))
        assert executor.dashboard.startswith("http://127.0.0.1:")
        with pytest.raises(ClusterError, match="the scheduler cannot be reached"):
            open_executor(address.replace("tls://", "tcp://"))
        with pytest.raises(ClusterError, match="the scheduler cannot be reached"):
            open_executor(address, tls=certificates(tmp_path / "others"))
        parts = [psutil.Process(), *psutil.Process().children(recursive=True)]
        listening = {
            connection.laddr.ip
            for part in parts
            for connection in part.net_connections("inet")
            if connection.status == "LISTEN"
        }
        assert listening == {"127.0.0.1"}
    finally:
        executor.close()


def test_invalid_options__are_clear_errors(tls, tmp_path, capsys):
    with pytest.raises(AbsentError, match="`tls_key`: /none: no such file"):
        TLS(tls.ca, tls.cert, "/none")
    with pytest.raises(OptionError, match="expected an address that begins with tls://"):
        open_executor("tcp://127.0.0.1:1", tls=tls)
    with pytest.raises(OptionError, match="expected a cluster"):
        open_executor("threads", tls=tls)
    assert main(["evaluate", "run", "--unseen", "c", "--tls-ca", tls.ca]) == 2
    assert "--tls-cert is required: --tls-ca, --tls-cert and --tls-key belong together" in capsys.readouterr().err
