"""`rallypoint assign`: what an assignment would be, answered on paper. Nothing here asks a service or changes a group.

`questions` is the form in which a question is written, `algorithms` finds who answers it, `report` judges and shows an
answer, `lines` answers a stream of questions, `command` is the command line.
"""
