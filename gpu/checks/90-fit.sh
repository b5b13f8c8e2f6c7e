# `makeroom fit` on three models: the batch size it finds runs, one 2 % larger fails, and the search took at most four
# runs.

card=16GiB

# trains NAME MODEL BATCH: checks that the model trains with a batch on a GPU of that size, for about as many steps as
# `fit` observes; more if they differ.
trains() {
    local steps=24
    [ "$2" = varied ] && steps=40
    (cd "$WORK" && timeout 120 "$MAKEROOM" run --no-stacks --limit $card -o "$1.room" -- \
        "$PYTHON" "$PROGRAMS/fit_train.py" "$2" "$3" $steps >"$1.out" 2>&1)
}

fits() {
    local model=$1 answer=$WORK/fit_$1.json batch runs
    if ! (cd "$WORK" && timeout 240 "$MAKEROOM" fit --json --memory $card -- \
        "$PYTHON" "$PROGRAMS/fit_train.py" "$model" {} >"$answer" 2>"$WORK/fit_$model.err"); then
        report FAILED "fit_$model" "$(tail -1 "$WORK/fit_$model.err")"
        return
    fi
    batch=$(ask 'at(fit, "batch")' fit="$answer")
    runs=$(ask 'len(at(fit, "runs"))' fit="$answer")
    local beyond=$((batch + (batch + 49) / 50 + 1)) said="$batch in $runs runs"
    if ! trains "fit_${model}_at" "$model" "$batch"; then
        report FAILED "fit_$model" "$said, but it fails"
    elif trains "fit_${model}_beyond" "$model" "$beyond"; then
        report FAILED "fit_$model" "$said, but $beyond also fits" batch="$batch" runs="$runs"
    elif [ "$runs" -gt 4 ]; then
        report FAILED "fit_$model" "$said" batch="$batch" runs="$runs"
    else
        report ok "fit_$model" "$said; $beyond fails" batch="$batch" runs="$runs"
    fi
}

# In parallel: no time is measured, and several GPUs of that size fit on this one. Results are reported in order.
for model in gpt conv varied; do fits $model >"$WORK/fit_$model.said" & done
wait
for model in gpt conv varied; do cat "$WORK/fit_$model.said"; done
