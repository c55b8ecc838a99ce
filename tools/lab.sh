#!/bin/sh
# Opens the course in JupyterLab, on copies in work/: so a learner changes nothing that git tracks, and `git pull` never conflicts.
# A copy that nobody has saved is renewed when the course has a newer version; one that somebody has saved is never overwritten.
# work/.made has the checksum of each copy as it was made.
set -eu

# A file of the course, with its links to other folders made one folder longer.
linked() { sed -E -e 's#\]\(\.\./#](../../#g' -e 's#\]\(\.\./\.\./(notebooks|exercises)/#](../\1/#g' "$1"; }

mkdir -p work/notebooks work/exercises work/.made/notebooks work/.made/exercises
for file in notebooks/[0-9]*.ipynb notebooks/*.md exercises/[0-9]*.ipynb exercises/AGENTS.md; do
    copy=work/$file made=work/.made/$file
    new=$(linked "$file" | cksum)
    old=$(cat "$made" 2>/dev/null || true)
    if [ ! -e "$copy" ] || { [ "$new" != "$old" ] && [ "$(cksum < "$copy")" = "$old" ]; }; then
        linked "$file" > "$copy.new"
        mv "$copy.new" "$copy"
        echo "$new" > "$made"
    elif [ "$new" != "$old" ]; then
        echo "$copy has your work in it, and the course has a newer version: to get that, rename yours and run this again"
    fi
done
JUPYTER_CONFIG_PATH="$PWD/tools/jupyter" exec "${BIN:-.venv/bin}/jupyter" lab --notebook-dir=. work/notebooks/00_look.ipynb "$@"
