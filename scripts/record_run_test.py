#!/usr/bin/env python3
import unittest
import xml.etree.ElementTree as xml

import record_run
from record_run import COLUMNS, Player, Screen, draw, thin, versions


def lines(screen):
    return screen.text().split("\n")


class ScreenTest(unittest.TestCase):
    def test_a_line_is_redrawn_in_place(self):
        screen = Screen()
        screen.feed("step 10 of 20\x1b[K", 1.0)
        screen.feed("\rstep 9\x1b[K", 2.0)
        screen.feed("\rend\x1b[K\r\nnext", 3.0)
        self.assertEqual(lines(screen), ["end", "next"])

    def test_without_erasing_the_rest_of_the_line_stays(self):
        screen = Screen()
        screen.feed("abcdef\rXY", 0.0)
        self.assertEqual(lines(screen), ["XYcdef"])

    def test_colours_are_kept_and_a_sequence_may_come_in_two_pieces(self):
        screen = Screen()
        screen.feed("a\x1b[3", 0.0)
        screen.feed("2mb\x1b[0mc", 0.0)
        self.assertEqual(screen.rows[0], [("a", ""), ("b", "green"), ("c", "")])

    def test_long_lines_wrap(self):
        screen = Screen()
        screen.feed("x" * (COLUMNS + 3), 0.0)
        self.assertEqual([len(line) for line in lines(screen)], [COLUMNS, 3])

    def test_what_it_does_not_know_is_an_error(self):
        with self.assertRaises(ValueError):
            Screen().feed("\x1b[2J", 0.0)


class PictureTest(unittest.TestCase):
    def test_a_row_has_versions_and_the_last_one_stays(self):
        screen = Screen()
        screen.feed("one", 1.0)
        screen.feed("\rtwo", 2.0)
        shown = versions(screen.history)[0]
        self.assertEqual([(begin, end) for begin, end, _ in shown], [(1.0, 2.0), (2.0, None)])

    def test_moments_too_short_to_see_are_left_out_but_never_the_last(self):
        shown = thin([[0.0, 0.1, "a"], [0.1, 0.2, "b"], [0.2, 5.0, "c"], [5.0, None, "d"]], 0.15)
        self.assertEqual(shown, [[0.0, 0.2, "a"], [0.2, 5.0, "c"], [5.0, None, "d"]])

    def test_a_session_becomes_well_formed_svg_that_ends_with_the_last_screen(self):
        player = Player(".", {"PATH": "/usr/bin:/bin"})
        self.assertEqual(player.run("printf 'half <done>\\r'; sleep 0.3; echo 'all <done> & well'"), 0)
        self.assertEqual(player.run("exit 3"), 3)
        root = xml.fromstring(draw(player, "a test", "less < more"))
        texts = [element for element in root.iter() if element.tag.endswith("}text")]
        final = ["".join(element.itertext()) for element in texts if element.get("display") != "none"]
        self.assertIn("all <done> & well", final)
        self.assertIn("$ exit 3", final)
        self.assertNotIn("half <done>", final)
        self.assertEqual(root.find("{*}title").text, "less < more")

    def test_every_scene_has_its_picture_in_the_readme_with_its_words(self):
        readme = (record_run.ROOT / "README.md").read_text()
        for scene, (_, _, title) in record_run.SCENES.items():
            self.assertIn(f"![{title}](docs/images/{scene}.svg)", readme)

    def test_the_watcher_kills_once_and_only_late_enough(self):
        watch, done = record_run.kill_worker_at(80, record_run.Path("/nonexistent"))
        watch("pass 1  step 79/188  loss 1")
        self.assertFalse(done)
        with self.assertRaises(FileNotFoundError):
            watch("pass 1  step 80/188  loss 1")


if __name__ == "__main__":
    unittest.main()
