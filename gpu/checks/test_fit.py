"""`makeroom fit` on three models: the batch size it finds runs, one 2 % larger fails, and the search took at most four runs."""

import concurrent.futures

import pytest

from support.runs import at, execute, last_line

CARD = "16GiB"
MODELS = ["gpt", "conv", "varied"]
MOST_RUNS = 4


def trains(runs, name, model, batch):
    """Whether the model trains with a batch on a GPU of that size, for about as many steps as `fit` observes."""
    command = [runs.makeroom, "run", "--no-stacks", "--limit", CARD, "-o", runs.directory / f"{name}.room", "--",
               *runs.python("fit_train.py", model, batch, 40 if model == "varied" else 24)]
    path = lambda ending: runs.directory / f"{name}.{ending}"
    return execute(command, path("out"), path("err"), 120, runs.environment, runs.directory) == 0


def search(runs, model):
    """The batch that `fit` finds, the number of its runs, a batch 2 % larger, and whether each trains."""
    command = ["fit", "--json", "--memory", CARD, "--", *runs.python("fit_train.py", model, "{}")]
    answer, status = runs.call(f"fit_{model}", *command, environment=runs.environment, seconds=240)
    if status != 0:
        return None
    batch = at(answer, "batch")
    beyond = batch + (batch + 49) // 50 + 1
    return (batch, len(at(answer, "runs")), beyond, trains(runs, f"fit_{model}_at", model, batch),
            trains(runs, f"fit_{model}_beyond", model, beyond))


@pytest.fixture(scope="module")
def searches(runs):
    """In parallel: no time is measured, and several GPUs of that size fit on this one."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        yield {model: pool.submit(search, runs, model) for model in MODELS}


@pytest.mark.needs("torch")
@pytest.mark.goal(f"the batch runs, one 2 % larger fails, at most {MOST_RUNS} runs")
@pytest.mark.parametrize("model", MODELS, ids="fit_{}".format)
def test_fit(runs, show, searches, model):
    found = searches[model].result()
    assert found, f"fit failed: {last_line((runs.directory / f'fit_{model}.err').read_text(errors='replace'))}"
    batch, count, beyond, runs_at, runs_beyond = found
    show(f"{batch} in {count} runs; {beyond} fails", batch=batch, runs=count)
    assert runs_at, f"{batch} does not train"
    assert not runs_beyond, f"{beyond} also fits"
    assert count <= MOST_RUNS, f"{count} runs"
