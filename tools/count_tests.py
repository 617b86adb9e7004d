"""Prints "PASSED FAILED SKIPPED", the test cases of a `bazel test --build_event_json_file=FILE` run.

A GoogleTest binary counts as many as it has cases; a script, or a test that died before it wrote its results, as one.
A target that timed out, crashed or was not built counts at least one failure, whatever its results say.
"""

import json
import re
import sys
import urllib.parse
import xml.etree.ElementTree as ElementTree


def cases_of(path):
    """(passed, failed, skipped, names of skipped) of a test.xml, or None when it can't be read."""
    try:
        root = ElementTree.parse(path).getroot()
    except (OSError, ElementTree.ParseError):
        return None
    passed = failed = skipped = 0
    names = []
    for case in root.iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed += 1
        elif case.find("skipped") is not None or case.get("result") in ("skipped", "suppressed"):
            skipped += 1
            names.append("%s.%s" % (case.get("classname"), case.get("name")))
        else:
            passed += 1
    return passed, failed, skipped, names


def main():
    passed = failed = skipped = 0
    # The last attempt of each target and shard is the one that counts.
    results = {}
    not_built = set()
    for line in open(sys.argv[1], encoding="utf-8"):
        event = json.loads(line)
        if "testResult" in event:
            key = event["id"]["testResult"]
            results[(key["label"], key.get("shard", 0))] = event["testResult"]
        elif "targetCompleted" in event["id"] and not event.get("completed", {}).get("success", False):
            not_built.add(event["id"]["targetCompleted"]["label"])
    for (label, _), result in sorted(results.items()):
        xml = [o["uri"] for o in result.get("testActionOutput", []) if o["name"] == "test.xml"]
        cases = cases_of(urllib.parse.unquote(re.sub("^file://", "", xml[0]))) if xml else None
        good = result["status"] == "PASSED"
        case_passed, case_failed, case_skipped, names = cases or (int(good), 0, 0, [])
        if not good and case_failed == 0:
            case_failed = 1
        passed, failed, skipped = passed + case_passed, failed + case_failed, skipped + case_skipped
        for name in names:
            print("skipped: %s %s" % (label, name), file=sys.stderr)
        if not good:
            print("failed: %s" % label, file=sys.stderr)
    for label in sorted(not_built):
        print("not built: %s" % label, file=sys.stderr)
    print(passed, failed + len(not_built), skipped)


if __name__ == "__main__":
    main()
