"""`muster verify` as a person or a script meets it: what it prints when all is not well, and when it is stopped.
Whether it can tell equal from unequal is asked by tests/e2e/verify.py."""

from harness import USAGE, CommandTest, main, needs_worker


class Verify(CommandTest):
    def setUp(self):
        super().setUp()
        self.job = self.write_job()


@needs_worker
class Reporting(Verify):
    def test_with_faults_left_programs_get_one_document(self):
        # A pair needs three workers, so it never falls.
        outcome = self.muster("verify", self.job, "--workers", 1, "--faults", "pair:2", "-o", "json")
        self.assert_mistake(outcome, USAGE, "2 of 2 faults left")
        self.assertEqual(outcome.json["error"]["kind"], "usage")
        self.assertIn("2 of 2 faults left", outcome.json["error"]["message"])
        self.assertTrue(outcome.json["equal"])
        self.assertEqual((outcome.json["faults"], outcome.json["faults_left"]), (0, 2))

    def test_people_are_told_too(self):
        outcome = self.muster("verify", self.job, "--workers", 1, "--faults", "pair:1", "-q")
        self.assert_mistake(outcome, USAGE, "1 of 1 faults left")
        self.assertIn("equal, bit for bit", outcome.out)


if __name__ == "__main__":
    main()
