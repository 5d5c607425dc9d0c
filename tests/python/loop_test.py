"""The loop: the same bits alone and with several workers, and mistakes that are named."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

from harness import MUSTER, PROGRAM, ProgramTest, main


class Equality(ProgramTest):
    def test_alone_and_with_1_2_and_4_workers(self):
        program = self.write(options={"runs": "alone"})
        done = self.assert_ok(self.python(program))
        self.assertIn("40", done.stdout)
        alone = self.result(os.path.join("alone", "latest"))
        self.assertEqual(alone["steps"], 40)
        for workers in ("1", "2", "4"):
            result = self.train(program, "run-" + workers, "--workers", workers)
            for key in ("weights_hash", "ledger", "steps"):
                self.assertEqual(result[key], alone[key], f"{key} with {workers} workers")
        self.assertEqual(self.train(program, "without-launcher")["weights_hash"], alone["weights_hash"])

    def test_dropout_and_the_seed_count(self):
        program = self.write()
        base = self.train(program, "base")["weights_hash"]
        self.assertNotEqual(self.train(program, "seed", "-s", "seed=4")["weights_hash"], base)
        plain = PROGRAM.format(options={}, steps=40, before="pass", after="pass", end="pass")
        without = self.write(plain.replace("0.25", "0.0"), name="without.py")
        self.assertNotEqual(self.train(without, "without")["weights_hash"], base)

    def test_generators_of_numpy_and_random_are_seeded_for_each_lane(self):
        noise = "import numpy, random; inputs = inputs + 0.1 * float(numpy.random.rand()) + 0.1 * random.random()"
        program = self.write(before=noise)
        two = self.train(program, "two", "--workers", "2")
        self.assertEqual(self.train(program, "one")["weights_hash"], two["weights_hash"])
        self.assertNotEqual(self.train(self.write(), "plain")["weights_hash"], two["weights_hash"])

    def test_join_seeds_what_is_drawn_before_the_loop(self):
        text = """
            import random
            import numpy, torch, muster
            run = muster.join(lanes=4, seed={seed})
            rows = list(range(200))
            random.shuffle(rows)
            x = torch.linspace(-1, 1, 800).reshape(200, 4)[rows[:100]]
            model = torch.nn.Linear(4, 1)
            with torch.no_grad():
                model.weight.copy_(torch.tensor(numpy.random.rand(1, 4)))
            run.attach(model, muster.SGD(lr=0.1))
            for step in run.steps(x, batch=20, steps=5):
                for inputs in step:
                    step.backward((model(inputs) - 1).square().mean())
        """
        program = self.write(text.format(seed=3))
        two = self.train(program, "two", "--workers", "2", "-s", "workers.min=2")
        self.assertEqual(self.train(program, "one")["weights_hash"], two["weights_hash"])
        other = self.write(text.format(seed=4), name="other.py")
        self.assertNotEqual(self.train(other, "other")["weights_hash"], two["weights_hash"])

    def test_a_norm_that_is_not_run_in_each_lane(self):
        # Lanes 0 and 1 leave its statistics alone: those of another lane must not count for them.
        program = self.write(before="net[1].train(step.lane > 1)")
        one = self.train(program, "one")
        self.assertEqual(self.train(program, "two", "--workers", "2")["weights_hash"], one["weights_hash"])
        self.assertEqual(self.train(program, "four", "--workers", "4")["weights_hash"], one["weights_hash"])

    def test_parameters_without_a_gradient_are_named_once(self):
        done = self.assert_ok(self.python(self.write("""
            import torch, muster
            run = muster.join(lanes=2)
            net = torch.nn.ModuleDict({"used": torch.nn.Linear(4, 1), "frozen": torch.nn.Linear(4, 1).requires_grad_(False),
                                       "unused": torch.nn.Linear(4, 1), "late": torch.nn.Linear(4, 1)})
            run.attach(net, muster.AdamW(lr=0.1, weight_decay=0.5))
            before = net["unused"].weight.detach().clone()
            for step in run.steps(torch.ones(40, 4), batch=10, steps=4):
                for x in step:
                    loss = net["used"](x).square().mean()
                    step.backward(loss + net["late"](x).mean() if step.lane == 1 else loss)
            after = net["unused"].weight
            assert (after.abs() < before.abs()).all(), (before, after)  # as the warning says
        """)))
        self.assertEqual(done.stderr.count("no gradient came for unused.weight, unused.bias in the first step"), 1, done.stderr)
        self.assertNotIn("no gradient", self.assert_ok(self.python(self.write(name="plain.py"))).stderr)

    def test_a_norm_alone_and_one_that_was_frozen(self):
        program = self.write("""
            import torch, muster
            run = muster.join(lanes=2)
            net = torch.nn.BatchNorm1d(4)
            net.after = frozen = torch.nn.BatchNorm1d(4).eval()
            run.attach(net, muster.SGD(lr=0.1))
            frozen(net(torch.ones(3, 4)))  # before the loop: of no lane
            for step in run.steps(torch.linspace(-1, 2, 400).reshape(100, 4), batch=10, steps=10):
                for x in step:
                    step.backward(frozen(net(x)).square().mean())
            assert net.running_mean.abs().sum() > 0 and not frozen.training
            assert torch.equal(frozen.running_mean, torch.zeros(4)), frozen.running_mean
            print("checked")
        """)
        self.assertIn("checked", self.assert_ok(self.python(program)).stdout)

    def test_a_map_style_dataset(self):
        program = self.write("""
            import torch, muster
            from torch.nn import functional as F

            class Rows(torch.utils.data.Dataset):
                def __len__(self):
                    return 50
                def __getitem__(self, i):
                    x = torch.full((4,), i / 50)
                    return {"x": x, "y": x.sum(dim=0, keepdim=True)}

            run = muster.join(lanes=3, seed=1)
            model = run.attach(torch.nn.Linear(4, 1), muster.SGD(lr=0.1, momentum=0.9))
            for step in run.steps(Rows(), batch=9, passes=4):
                for batch in step:
                    step.backward(F.mse_loss(model(batch["x"]), batch["y"]))
        """)
        one = self.train(program, "one")
        self.assertEqual(one["steps"], 23)  # 200 samples in steps of 9: the last one is short
        self.assertEqual(self.train(program, "two", "--workers", "2")["weights_hash"], one["weights_hash"])

    def test_it_needs_no_numpy(self):
        text = """
            import sys
            {numpy}
            import torch, muster
            run = muster.join(lanes=2)
            model = run.attach(torch.nn.Linear(4, 1), muster.SGD(lr=0.1))
            rows = [(torch.full((4,), i / 50), torch.tensor([True, False]), torch.zeros(0)) for i in range(50)]
            for step in run.steps(rows, batch=10, steps=3):
                for x, _, _ in step:
                    step.backward(model(x).square().mean())
        """
        without = self.write(text.format(numpy="sys.modules['numpy'] = None"), name="without.py")
        plain = self.write(text.format(numpy=""), name="plain.py")
        self.assertEqual(self.train(without, "without")["weights_hash"], self.train(plain, "plain")["weights_hash"])

    def test_tensors_with_an_identity_or_collate_are_rows_too(self):
        text = """
            import torch, muster
            from torch.utils.data import TensorDataset, default_collate

            class Doubled(TensorDataset):
                def __getitem__(self, i):
                    return tuple(2 * part for part in super().__getitem__(i))

            run = muster.join(lanes=2)
            x = torch.linspace(-1, 1, 200).reshape(50, 4)
            model = run.attach(torch.nn.Linear(4, 1), muster.SGD(lr=0.1))
            for step in run.steps({data}, batch=10, passes=1{more}):
                for inputs, targets in step:
                    step.backward(torch.nn.functional.mse_loss(model(inputs), targets[:, :1]))
        """
        hashes = []
        for i, (data, more) in enumerate([("(x, x)", ""), ("(x, x)", ", identity='v1'"),
                                          ("[x, x]", ", collate=default_collate"),
                                          ("TensorDataset(x, x)", ", identity='v1', collate=default_collate"),
                                          ("Doubled(x / 2, x / 2)", "")]):
            result = self.train(self.write(text.format(data=data, more=more)), f"run-{i}")
            self.assertEqual(result["steps"], 5, (data, more))
            hashes.append(result["weights_hash"])
        self.assertEqual(len(set(hashes)), 1, hashes)

    def test_samples_of_any_class(self):
        text = """
            import dataclasses, torch, muster

            {decorator}
            class Sample:
                x: torch.Tensor
                tags: set

            def make(i):
                sample = Sample.__new__(Sample)
                sample.x, sample.tags = torch.full((4,), i / 50), {{f"read at 0x{{j}}" for j in range(9)}}
                return sample

            run = muster.join(lanes=2)
            model = run.attach(torch.nn.Linear(4, 1), muster.SGD(lr=0.1))
            steps = run.steps([make(i) for i in range(50)], batch=10, steps=5{more},
                              collate=lambda samples: torch.stack([sample.x for sample in samples]))
            for step in steps:
                for x in step:
                    step.backward(model(x).square().mean())
        """
        hashes = []
        for i, (decorator, more) in enumerate([("@dataclasses.dataclass", ""), ("", ", identity='v1'")]):
            program = self.write(text.format(decorator=decorator, more=more))
            # Whether workers accept each other; strings have other hashes in each of them.
            hashes.append(self.train(program, f"run-{i}", "--workers", "2", "-s", "workers.min=2")["weights_hash"])
        self.assertEqual(hashes[0], hashes[1])
        done = self.python(self.write(text.format(decorator="", more="")))
        self.assertEqual(done.returncode, 1)
        self.assertIn("give run.steps() identity=", done.stderr)

    def test_faults_change_nothing(self):
        program = self.write(steps=400, after="import time; time.sleep(0.02)")
        done = self.muster("verify", "--program", program, "--workers", "3", "--faults",
                           "kill:2,suspend:1,leave:1,join:1", "--seed", "4")
        self.assert_ok(done)
        self.assertIn("equal, bit for bit", done.stdout)

    def test_long_work_is_no_hang_if_it_tells_of_progress(self):
        work = ("import os, time; first = step.number == 3 and step.lane == 0 and not os.path.exists('{run}-slept'); "
                "[(open('{run}-slept', 'w').close(), time.sleep(0.1), {progress}) for _ in range(60 if first else 0)]")
        for progress, hangs in (("run.progress()", False), ("None", True)):
            run = f"run-{hangs}"
            program = self.write(steps=10, before=work.format(progress=progress, run=run),
                                 options={"workers": {"hang_timeout": "2s", "min": 2}})
            self.train(program, run, "--workers", "2")
            log = pathlib.Path(self.path(run, "launch.log")).read_text()
            self.assertEqual("is killed: the coordinator removed it" in log, hangs, log)

    def test_a_run_is_resumed_by_its_program(self):
        program = self.write(options={"checkpoint": {"every": "10 steps"}})
        whole = self.train(program, "whole")
        self.train(program, "part", "-s", "steps=20")
        self.assert_ok(self.muster("resume", self.path("part"), "-s", "steps=40", "--quiet"))
        self.assertEqual(self.result("part")["weights_hash"], whole["weights_hash"])


class AfterTheLoop(ProgramTest):
    def test_the_model_is_torchs_again_with_the_trained_values(self):
        end = """
    net.eval()
    loss = F.mse_loss(net(x), y).item()
    assert loss < 0.4, loss
    assert type(net[1]) is nn.BatchNorm1d and net[1].running_mean.abs().sum() > 0
    saved = muster.runs("runs")[-1].load_weights()
    for name, value in saved.items():
        assert "num_batches" in name or torch.equal(net.state_dict()[name], value), name
    assert "1.running_var" in saved
    net.train()
    F.mse_loss(net(x), y).backward()
    assert net[0].weight.grad is not None
    print("checked")
"""
        program = self.write(steps=200, end=end)
        self.assertIn("checked", self.assert_ok(self.python(program)).stdout)

    def test_what_the_program_keeps_of_the_weights(self):
        end = """
    others = [torch.full((size,), 5.0) for size in (100, 1000, 10000) for _ in range(50)]
    assert torch.equal(kept, net[0].weight), (kept, net[0].weight)
    assert torch.equal(best["1.running_mean"], net[1].running_mean)
    net.load_state_dict(best)
    assert torch.equal(best["0.weight"], net[0].weight)
    print("checked")
"""
        program = self.write(after="best = model.state_dict(); kept = net[0].weight.detach()[:]", end=end)
        self.assertIn("checked", self.assert_ok(self.python(program)).stdout)

    def test_ctrl_c_is_pythons_again(self):
        end = """
    import os, signal, time
    try:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(5)
    except KeyboardInterrupt:
        print("checked")
"""
        self.assertIn("checked", self.assert_ok(self.python(self.write(end=end))).stdout)

    def test_the_job_has_a_name_whatever_the_program_is_called(self):
        program = self.write(name="my train (2).py", steps=2)
        self.assert_ok(self.python(program))
        self.assert_ok(self.muster("train", "--program", program, "--quiet"))
        with open(program) as file:
            self.assert_ok(self.call(sys.executable, "-c", file.read()))
        names = sorted(re.sub(r"-\d{8}-\d{6}.*", "", run.name) for run in pathlib.Path(self.path("runs")).iterdir()
                       if not run.is_symlink())
        self.assertEqual(names, ["my-train-2", "my-train-2", "python"])

    def test_a_loop_that_was_left_open_ends_with_the_program(self):
        done = self.assert_ok(self.python(self.write("""
            import atexit

            def check():  # after muster's own
                assert type(net) is torch.nn.BatchNorm1d and net.weight.sum() == 4
                print("checked")

            atexit.register(check)
            import muster, torch
            run = muster.join(lanes=1)
            net = run.attach(torch.nn.BatchNorm1d(4), muster.SGD(lr=0.1))
            steps = run.steps(torch.ones(40, 4), batch=10)
            next(steps)
        """)))
        self.assertIn("checked", done.stdout)


def is_running(process):
    """A zombie, which waits for an init that may not be there, is not."""
    try:
        stat = pathlib.Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


class Ends(ProgramTest):
    def test_a_program_that_is_asked_for_its_job_ends_with_muster(self):
        asked = pathlib.Path(self.path("asked"))
        program = self.write("""
            import os, time
            with open("asked", "w") as file:
                print(os.getpid(), file=file)
            time.sleep(600)
        """)
        with subprocess.Popen([MUSTER, "train", "--program", program], cwd=self.folder.name,
                              stderr=subprocess.DEVNULL) as process:
            deadline = time.monotonic() + 60
            while not asked.exists() or not asked.read_text():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
        while is_running(int(asked.read_text())):
            self.assertLess(time.monotonic(), deadline, "it goes on without muster")
            time.sleep(0.05)


    # Ctrl-C in the body of a step, once: the step is committed, and another process begins with the next.
    STOP = "import os, signal; step.number == 10 and os.kill(os.getpid(), signal.SIGINT)"

    def test_a_run_that_was_begun_without_muster_can_be_resumed(self):
        program = self.write(after=self.STOP, end="import sys; assert sys.argv[1:] == ['a b'], sys.argv")
        done = self.call(sys.executable, program, "a b")
        self.assertEqual(done.returncode, 130, done.stdout + done.stderr)
        self.assertIn("go on with: muster resume", done.stdout + done.stderr)
        self.assert_ok(self.muster("resume", "latest", "--quiet", "--workers", "2"))
        result = self.result(os.path.join("runs", "latest"))
        self.assertEqual(result["steps"], 40)
        with open(self.path("runs", "latest", "events.jsonl")) as file:
            events = [json.loads(line) for line in file]
        attempts = [event for event in events if event["event"] in ("start", "end")]
        self.assertEqual([event["event"] for event in attempts], ["start", "end"] * 2)
        self.assertEqual([attempts[0]["command"], attempts[2]["command"]], ["python", "resume"])
        self.assertTrue(attempts[0]["host"] and attempts[0]["version"])
        self.assertEqual((attempts[1]["finished"], attempts[1]["stopped_by"]), (False, signal.SIGINT))
        self.assertTrue(attempts[3]["finished"])
        plain = self.train(self.write(name="plain.py"), "plain")
        self.assertEqual(result["weights_hash"], plain["weights_hash"])

    def test_a_run_of_no_file_cannot_be_resumed_and_says_so(self):
        with open(self.write(after=self.STOP)) as file:
            done = self.call(sys.executable, "-c", file.read())
        self.assertEqual(done.returncode, 130, done.stdout + done.stderr)
        self.assertIn("cannot be resumed", done.stdout + done.stderr)
        self.assertNotIn("muster resume", done.stdout + done.stderr)
        done = self.muster("resume", "latest")
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        self.assertIn("cannot be resumed", done.stderr)

    def test_a_directory_that_has_a_run_names_how_to_resume_it(self):
        text = PROGRAM.format(options={}, steps=2, before="pass", after="pass", end="pass")
        program = self.write(text.replace("lanes=4", "lanes=4, run_dir='here'"))
        self.assert_ok(self.python(program))
        self.assertIn("go on with it: muster resume here", self.python(program).stderr)


class Mistakes(ProgramTest):
    def refused(self, sentence, code=3, **program):
        done = self.muster("train", "--program", self.write(**program), "--workers", "2", "--quiet")
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertIn(sentence, done.stdout + done.stderr)
        return done

    def test_leaving_the_loop(self):
        self.refused("left its loop", after="break")

    def test_an_exception_is_no_crash_that_is_restarted(self):
        done = self.refused("ValueError: on purpose", after="raise ValueError('on purpose')")
        self.assertLess(done.stderr.count("Traceback"), 4)

    def test_sys_exit_is_no_crash_that_is_restarted(self):
        for before in ("if step.number == 5: raise SystemExit('diverged')",
                       "if step.number == 5: raise SystemExit(1)"):
            done = self.refused("train.py ended with: sys.exit(", before=before)
            self.assertNotIn("started again", done.stdout + done.stderr)
        self.refused("sys.exit('no data')", text="raise SystemExit('no data')")
        self.refused("sys.exit('too bad')", end="raise SystemExit('too bad')")

    def test_an_end_of_the_program_before_that_of_training(self):
        self.refused("ended before its training had", after="raise SystemExit")
        self.refused("ended before its training had", after="break", end="raise SystemExit(0)")
        self.refused("without run.steps()", text="raise SystemExit(0)")
        program = self.write(end="raise SystemExit(0)")
        self.assertEqual(self.train(program, "to-the-end")["steps"], 40)

    def test_gradients_that_would_count_twice(self):
        loss = "F.mse_loss(model(inputs), targets)"
        self.refused("once for each lane", before=f"step.backward({loss})")
        shared = """
            import torch, muster
            from torch.utils.checkpoint import checkpoint
            run = muster.join(lanes=2)
            net = run.attach(torch.nn.Linear(4, 4), muster.SGD(lr=0.1))
            for step in run.steps(torch.ones(40, 4), batch=10, steps=2):
                for x in step:
                    x.requires_grad_()
                    middle = checkpoint(net, x, use_reentrant=True)
                    step.backward(checkpoint(net, middle, use_reentrant=True).square().mean())
        """
        self.refused("twice for one parameter", text=shared)

    def test_two_runs_of_one_program(self):
        again = "run = muster.join(); run.attach(nn.Linear(4, 1), muster.SGD(lr=0.1)); run.steps(x, batch=30)"
        done = self.muster("train", "--program", self.write(end=again), "--quiet", "--run-dir", "run", "--workers", "2")
        self.assertEqual(done.returncode, 3, done.stdout + done.stderr)
        self.assertIn("is the program's second", done.stderr)
        self.assertIn("the training itself is complete", done.stderr)
        self.assertEqual(self.result("run")["steps"], 40)

    def test_two_runs_at_once(self):
        program = self.write("""
            import torch, muster

            def begin():
                run = muster.join(lanes=1)
                net = run.attach(torch.nn.Linear(4, 1), muster.SGD(lr=0.1))
                return net, run.steps(torch.ones(40, 4), batch=10)

            def refused(first, call, *words):
                try:
                    call(*words)
                except RuntimeError as error:
                    assert "another run of this process" in str(error), error
                else:
                    raise AssertionError("it was accepted")
                first.close()

            net, first = begin()
            _, second = begin()
            next(first)
            refused(first, next, second)
            net, first = begin()
            next(first)
            refused(first, begin)
            net, last = begin()
            for step in last:
                for x in step:
                    step.backward(net(x).square().mean())
            print("checked")
        """)
        self.assertIn("checked", self.assert_ok(self.python(program)).stdout)

    def test_settings_that_join_has_not_prepared(self):
        done = self.python(self.write(options={"seed": 4}))
        self.assertEqual(done.returncode, 1)
        self.assertIn("give them to join()", done.stderr)
        self.assertEqual(self.call(sys.executable, self.write(), MUSTER_SEED="4").returncode, 1)

    def test_lanes_that_are_not_computed(self):
        self.refused("has not called backward", before="continue")
        self.refused("has not computed all lanes", before="break")

    def test_a_parameter_that_the_program_changes(self):
        for change, name in (("torch.nn.init.zeros_(model[0].bias)", "0.bias"),
                             ("model[0].bias.data = torch.zeros(32)", "0.bias"),
                             ("model[0].bias = nn.Parameter(torch.zeros(32))", "0.bias"),
                             ("model[0].more = nn.Parameter(torch.zeros(32))", "0.more"),
                             ("model[1].running_mean = torch.zeros(32)", "1.running_mean")):
            self.refused(f"has changed a parameter or a buffer of the attached model, '{name}'", after=change)

    def test_a_parameter_that_is_frozen_or_unfrozen(self):
        self.refused("has frozen or unfrozen '4.weight'", after="model[4].weight.requires_grad_(False)")
        self.refused("has frozen or unfrozen '0.weight'", text="""
            import torch, muster
            run = muster.join(lanes=2)
            model = torch.nn.Sequential(torch.nn.Linear(4, 4).requires_grad_(False), torch.nn.Linear(4, 1))
            run.attach(model, muster.SGD(lr=0.1))
            for step in run.steps(torch.ones(40, 4), batch=10, passes=3):
                if step.number == 2:
                    model.requires_grad_(True)
                for x in step:
                    step.backward(model(x).square().mean())
        """)

    def test_a_backward_of_ones_own(self):
        self.refused("only during the backward pass", before="F.mse_loss(model(inputs), targets).backward()")

    def test_what_is_no_data_set(self):
        for data, sentence in (("(numpy_like, numpy_like)", "a tuple is a data set only if"),
                               ("{'x': x, 'y': x}", "a dict is a data set only if"),
                               ("(x, x[:3])", "one row for each sample"),
                               ("iter([x])", "needs __len__ and __getitem__")):
            done = self.python(self.write(f"""
                import muster, torch
                x = torch.ones(40, 4)
                numpy_like = x.tolist()
                run = muster.join(lanes=1)
                run.attach(torch.nn.Linear(4, 1), muster.SGD(lr=0.1))
                run.steps({data}, batch=10, identity="v1")
            """))
            self.assertEqual(done.returncode, 1)
            self.assertIn(sentence, done.stderr)

    def test_a_lane_that_is_too_small_for_batch_normalization(self):
        text = PROGRAM.format(options={}, steps=2, before="pass", after="pass", end="pass")
        short = text.replace("batch=30, steps=2", "batch=23, passes=1")  # of 300 samples, one is left
        self.refused("only 1 sample: the last step has only 1 of the batch's 23 samples; leave it out with steps: 13",
                     text=short)
        metrics = pathlib.Path(self.path("runs", "latest", "metrics.jsonl"))
        self.assertFalse(metrics.exists() and metrics.read_text(), "steps were trained before")
        self.refused("only 1 sample: give the job a larger batch or fewer lanes", text=text.replace("lanes=4", "lanes=30"))
        self.assertEqual(self.train(self.write(short.replace("passes=1", "steps=13")), "whole")["steps"], 13)

    def test_models_that_cannot_be_kept_exact(self):
        for made, sentence in (("nn.Sequential(nn.BatchNorm1d(4, momentum=None))", "cumulative average"),
                               ("nn.Linear(4, 1).double()", "float32"),
                               ("torch.compile(nn.Linear(4, 1))", "the model was compiled"),
                               ("nn.Sequential(torch.compile(nn.Linear(4, 1)))", "module '0' was compiled"),
                               ("compiled_in_place", "module '1' was compiled"),
                               ("nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False).bfloat16())",
                                "module '1' has a running_mean of torch.bfloat16"),
                               ("nn.Embedding(3, 4, max_norm=1)", "max_norm")):
            done = self.python(self.write(f"""
                import muster, torch
                from torch import nn
                compiled_in_place = nn.Sequential(nn.ReLU(), nn.Linear(4, 1))
                compiled_in_place[1].compile()
                muster.join().attach({made}, muster.SGD(lr=0.1))
            """))
            self.assertEqual(done.returncode, 1)
            self.assertIn(sentence, done.stderr)

    def test_parameters_in_shared_memory(self):
        program = self.write("""
            import muster, torch
            from torch import nn

            def refused(change, *names):
                model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4), nn.BatchNorm1d(4))
                change(model)
                try:
                    muster.join().attach(model, muster.SGD(lr=0.1))
                except TypeError as error:
                    assert "in the same memory" in str(error) and all(name in str(error) for name in names), error
                else:
                    assert not names, names

            def tie_data(model):
                model[0].weight.data = model[1].weight.data

            def view(model):
                model[0].register_buffer("first", model[0].weight.data[1])

            def tie_parameters(model):
                model[0].weight = model[1].weight

            def parts_of_one(model):
                both = torch.zeros(8, 4)
                model[0].weight.data, model[1].weight.data = both[:4], both[4:]

            def harmless_buffers(model):
                model[0].register_buffer("a", torch.zeros(4))
                model[0].register_buffer("b", model[0].a[:2])

            refused(tie_data, "'0.weight'", "'1.weight'")
            refused(view, "'0.weight'", "'0.first'")
            refused(lambda model: model[2].register_buffer("running_mean", model[0].bias.data), "'0.bias'", "running_mean")
            for change in (tie_parameters, parts_of_one, harmless_buffers):
                refused(change)
            print("checked")
        """)
        self.assertIn("checked", self.assert_ok(self.python(program)).stdout)

    def test_a_model_that_changes_between_attach_and_steps(self):
        for change, sentence in (("model.half()", "parameter '0.weight' is torch.float16"),
                                 ("model[1].bfloat16()", "module '1' has a running_mean of torch.bfloat16"),
                                 ("model[0] = nn.Linear(4, 4)", "parameter '0.weight' was added, replaced or removed"),
                                 ("model.compile()", "the model was compiled"),
                                 ("model.append(nn.Linear(4, 1))", "parameter '2.weight' was added, replaced")):
            done = self.python(self.write(f"""
                import torch, muster
                from torch import nn
                run = muster.join(lanes=1)
                model = run.attach(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False)), muster.SGD(lr=0.1))
                {change}
                run.steps(torch.ones(40, 4), batch=10)
            """))
            self.assertEqual(done.returncode, 1)
            self.assertIn(sentence, done.stderr)
        self.refused("the gradient of parameter 'weight' is torch.float64 (1, 4), not float32", text="""
            import torch, muster
            run = muster.join(lanes=2)
            model = run.attach(torch.nn.Linear(4, 1, bias=False), muster.SGD(lr=0.1))
            for step in run.steps(torch.ones(40, 4), batch=10):
                for x in step:
                    step.backward(model.double()(x.double()).square().mean())
        """)

    def test_a_program_without_a_loop(self):
        done = self.muster("train", "--program", self.write("print('nothing')"))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("without run.steps()", done.stderr)

    def test_a_run_that_cannot_be_read_keeps_its_exit_code(self):
        done = self.call(sys.executable, "-m", "muster.program", self.write(), "train", "--run", "nowhere")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("'nowhere' is not a run directory", done.stderr)

    def test_a_program_that_fails_shows_where(self):
        done = self.muster("train", "--program", self.write("import muster\n1 / 0"))
        self.assertEqual(done.returncode, 3)
        self.assertIn("line 2", done.stderr)
        self.assertIn("division by zero", done.stderr)

    def test_options_of_the_job_are_checked_with_the_programs_name(self):
        done = self.muster("train", "--program", self.write(options={"lanse": 3}))
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("train.py", done.stderr)
        self.assertIn("lanes", done.stderr)

    def test_a_job_file_and_a_program(self):
        done = self.muster("train", "job.yaml", "--program", "train.py")
        self.assertEqual(done.returncode, 2)
        self.assertIn("cannot be used together", done.stderr)
        done = self.muster("train")
        self.assertEqual(done.returncode, 2)

    def test_a_worker_and_a_program(self):
        for command in ("train", "verify"):
            done = self.muster(command, "--program", "train.py", "--worker", "mine")
            self.assertEqual(done.returncode, 2)
            self.assertIn("cannot be used together", done.stderr)


if __name__ == "__main__":
    main()
