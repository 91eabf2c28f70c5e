"""TEMP"""


def check_draft(plan, outputs, script):
    return []
