from collapsium.pipeline.cli.main import main
from collapsium.workers.kernels import child_processes, jit


def test_compile__fills_the_cache_with_all_kernels(monkeypatch, capsys, tmp_path):
    compiled = []
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(
        child_processes, "missing_kernels", lambda kernels: [kernel for kernel in kernels if kernel not in compiled]
    )
    monkeypatch.setattr(child_processes, "fill_cache", lambda kernels: compiled.extend(kernels))
    assert main(["compile"]) == 0
    assert {"number_runs", "expand_runs"} <= {kernel.python.__name__ for kernel in compiled}
    assert capsys.readouterr().out.endswith(f" {len(compiled)} in all\n")
    assert main(["compile"]) == 0
    assert "0 kernels compiled" in capsys.readouterr().out


def test_compile__reports_failures(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(jit, "cache_folder", lambda: tmp_path)
    monkeypatch.setattr(child_processes, "fill_cache", lambda kernels: None)
    monkeypatch.setattr(child_processes, "missing_kernels", lambda kernels: kernels[:2])
    assert main(["compile"]) == 1
    assert "2 of " in capsys.readouterr().err
    monkeypatch.setattr(jit, "cache_folder", lambda: None)
    assert main(["compile"]) == 1
    assert "NUMBA_CACHE_DIR" in capsys.readouterr().err
