"""READING bash: text in, the commands it would run out. Runs nothing, touches nothing.

    text → lex (words, redirections, a skeleton) → skeleton (tree-sitter) → read (the commands)

`read` is the door; `commands` has the values that come out of it.
"""
