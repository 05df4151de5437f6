"""Tables as JSON lines, by tools/table_to_jsonl. Skips with its reason where there is no pyarrow. Usage: table_to_jsonl_test.py TOOL"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = sys.argv.pop()


def run(*words, options=()):
    return subprocess.run([sys.executable, *options, TOOL, *map(str, words)], capture_output=True, text=True)


class WithoutPyarrow(unittest.TestCase):
    def test_the_refusal_says_how_to_get_it(self):
        ran = run("x.parquet", options=["-I", "-S"])  # no packages
        self.assertEqual(ran.returncode, 1)
        self.assertIn("pip install pyarrow", ran.stderr)


try:
    import pyarrow
    import pyarrow.parquet
    from pyarrow import ipc
except ImportError as missing:
    pyarrow = None
    REASON = f"there is no pyarrow: {missing}"

ROWS = [
    {"messages": [{"role": "user", "content": "naïve 東京 🎉\n\"x\"", "weight": None}, {"role": "assistant", "content": "", "weight": 1}], "score": 0.5},
    {"messages": [], "score": None},
    {"messages": None, "score": -1e300},
]


@unittest.skipUnless(pyarrow, "" if pyarrow else REASON)
class Tables(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.addCleanup(self.temporary.cleanup)
        self.folder = pathlib.Path(self.temporary.name)

    def refused(self, table, *words):
        path = self.folder / "bad.parquet"
        pyarrow.parquet.write_table(table, path)
        ran = run(path)
        self.assertEqual(ran.returncode, 1, ran.stdout)
        for word in words:
            self.assertIn(word, ran.stderr)
        self.assertFalse(list(self.folder.glob("bad.jsonl*")))

    def test_rows_come_back_in_their_order(self):
        table = pyarrow.Table.from_pylist(ROWS * 1500)
        pyarrow.parquet.write_table(table, self.folder / "a.parquet", row_group_size=700)
        with ipc.new_file(self.folder / "b.arrow", table.schema) as file:
            file.write_table(table, max_chunksize=1000)
        with ipc.new_stream(self.folder / "c.arrow", table.schema) as stream:
            stream.write_table(table)
        ran = run(*(self.folder / name for name in ("a.parquet", "b.arrow", "c.arrow")))
        self.assertEqual(ran.returncode, 0, ran.stderr)
        for name in "abc":
            lines = (self.folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
            self.assertEqual([json.loads(line) for line in lines], ROWS * 1500)
            self.assertIn(f"{name}.jsonl: 4500 lines", ran.stdout)

    def test_columns_and_folder_are_those_that_are_named(self):
        table = pyarrow.table({"a": [1, 2], "raw": [b"\xff", b""]})
        self.refused(table, "'raw'", "binary", "--columns")
        (self.folder / "out").mkdir()
        ran = run(self.folder / "bad.parquet", "--columns", "a", "--output", self.folder / "out")
        self.assertEqual((self.folder / "out/bad.jsonl").read_text(), '{"a": 1}\n{"a": 2}\n', ran.stderr)
        self.assertIn("no column 'b'", run(self.folder / "bad.parquet", "--columns", "b").stderr)

    def test_what_json_cannot_say_is_refused(self):
        self.refused(pyarrow.table({"x": [[1.0], [float("nan")]]}), "row 2")
        self.refused(pyarrow.table({"x": pyarrow.array([[{"t": 1}]], pyarrow.list_(pyarrow.struct([("t", pyarrow.timestamp("s"))])))}), "timestamp")
        (self.folder / "no.parquet").write_bytes(b"PAR1 and nothing else")
        self.assertEqual(run(self.folder / "no.parquet").returncode, 1)

    def test_a_file_that_is_there_is_not_touched(self):
        pyarrow.parquet.write_table(pyarrow.table({"a": [1]}), self.folder / "x.parquet")
        (self.folder / "x.jsonl").write_text("mine")
        self.assertIn("is there already", run(self.folder / "x.parquet").stderr)
        self.assertEqual((self.folder / "x.jsonl").read_text(), "mine")


if __name__ == "__main__":
    unittest.main(verbosity=2)
