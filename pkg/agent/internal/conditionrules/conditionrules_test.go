package conditionrules

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/workwire/workwire/pkg/agent/internal/budget"
	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/runtime/expression"
	"github.com/workwire/workwire/pkg/runtime/quota"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

func evaluator(t testing.TB) *Evaluator {
	t.Helper()
	e, err := New()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func object(t testing.TB, text string) *unstructured.Unstructured {
	t.Helper()
	obj := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := obj.UnmarshalJSON(data); err != nil {
		t.Fatal(err)
	}
	return obj
}

// lines returns conditions as type=status reason "message".
func lines(conditions []metav1.Condition) []string {
	out := []string{}
	for _, c := range conditions {
		out = append(out, fmt.Sprintf("%s=%s %s %q", c.Type, c.Status, c.Reason, c.Message))
	}
	return out
}

func celRule(expressions ...string) workv1.ConditionRule {
	return workv1.ConditionRule{Condition: "C", Type: workv1.CelConditionExpressionsType, CelExpressions: expressions}
}

func with(rule workv1.ConditionRule, message, expression string) workv1.ConditionRule {
	rule.Message, rule.MessageExpression = message, expression
	return rule
}

const widget = `{apiVersion: example.com/v1, kind: Widget, metadata: {name: w, labels: {a: b}}, spec: {replicas: 3, ratio: 0.5, list: [1, 2, 3], nothing: null},
status: {ready: 3, conditions: [{type: Complete, status: "True"}], none: []}}`

func TestOutcomes(t *testing.T) {
	t.Parallel()
	e := evaluator(t)
	wellKnown := workv1.ConditionRule{Condition: "Complete", Type: workv1.WellKnownConditionsType}
	job := func(conditions string) string {
		return "{apiVersion: batch/v1, kind: Job, metadata: {name: j}, status: {conditions: [" + conditions + "]}}"
	}
	pod := func(phase string) string {
		return "{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {phase: " + phase + "}}"
	}
	// The product of the lengths counts, 1,210,000; it takes no time.
	expensive := `object.long.contains(object.long)`
	long := strings.Replace(widget, "spec:", "long: "+strings.Repeat("a", 11_000)+", spec:", 1)
	for name, c := range map[string]struct {
		rule   workv1.ConditionRule
		object string
		want   string
	}{
		"true":           {celRule("object.spec.replicas == 3"), widget, `C=True ConditionRuleEvaluated "Manifest is C"`},
		"false":          {celRule("object.spec.replicas == 4"), widget, `C=False ConditionRuleEvaluated "Manifest is not C"`},
		"no expressions": {celRule(), widget, `C=True ConditionRuleEvaluated "Manifest is C"`},
		"all are true":   {celRule("true", "object.status.ready == object.spec.replicas"), widget, `C=True ConditionRuleEvaluated "Manifest is C"`},
		"stops at false": {celRule("false", "object.zz"), widget, `C=False ConditionRuleEvaluated "Manifest is not C"`},
		"fails after true": {celRule("true", "object.zz"), widget,
			`C=False ConditionRuleExpressionError "no such key: zz"`},
		"message":              {with(celRule("true"), "done", ""), widget, `C=True ConditionRuleEvaluated "done"`},
		"message when false":   {with(celRule("false"), "done", ""), widget, `C=False ConditionRuleEvaluated "done"`},
		"message expression":   {with(celRule("true"), "done", `result ? object.metadata.name + " is done" : "not"`), widget, `C=True ConditionRuleEvaluated "w is done"`},
		"and when false":       {with(celRule("false"), "done", `result ? "done" : object.metadata.name + " is not done"`), widget, `C=False ConditionRuleEvaluated "w is not done"`},
		"it gives nothing":     {with(celRule("true"), "done", `""`), widget, `C=True ConditionRuleEvaluated "done"`},
		"nor does the message": {with(celRule("true"), "", `""`), widget, `C=True ConditionRuleEvaluated "Manifest is C"`},
		"it fails":             {with(celRule("true"), "done", `object.zz`), widget, `C=True ConditionRuleEvaluated "no such key: zz"`},
		"it does not compile": {with(celRule("true"), "done", `foo`), widget,
			`C=True ConditionRuleEvaluated "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')"`},
		"it is no string": {with(celRule("false"), "done", `1`), widget,
			`C=False ConditionRuleEvaluated "expected message expression to have a string result, got int64"`},
		"it can not be built": {with(celRule("true"), "done", `"a".matches("(") ? "b" : "c"`), widget,
			"C=True ConditionRuleEvaluated \"error parsing regexp: missing closing ): `(`\""},
		"it costs too much": {with(celRule("true"), "done", expensive+` ? "a" : "b"`), long,
			`C=True ConditionRuleEvaluated "operation cancelled: actual cost limit exceeded"`},
		"no message for a failure": {with(celRule("object.zz"), "done", `"text"`), widget,
			`C=False ConditionRuleExpressionError "no such key: zz"`},
		"does not compile": {celRule("foo"), widget,
			`C=False ConditionRuleExpressionError "ERROR: <input>:1:1: undeclared reference to 'foo' (in container '')\n | foo\n | ^"`},
		"is no expression": {celRule(""), widget,
			`C=False ConditionRuleExpressionError "ERROR: <input>:1:0: Syntax error: mismatched input '<EOF>' expecting {'[', '{', '(', '.', '-', '!', 'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER}"`},
		"result is for messages": {celRule("result"), widget,
			`C=False ConditionRuleExpressionError "ERROR: <input>:1:1: undeclared reference to 'result' (in container '')\n | result\n | ^"`},
		"costs too much":        {celRule(expensive), long, `C=False ConditionRuleExpressionError "operation cancelled: actual cost limit exceeded"`},
		"no bool":               {celRule(`"yes"`), widget, `C=False ConditionRuleExpressionError "expected bool result, got string"`},
		"no bool in the object": {celRule(`object.spec.replicas`), widget, `C=False ConditionRuleExpressionError "expected bool result, got int64"`},
		"can not be built": {celRule(`object.metadata.name.matches("(")`), widget,
			"C=Unknown ConditionRuleInternalError \"error parsing regexp: missing closing ): `(`\""},
		"unknown type": {workv1.ConditionRule{Condition: "C", Type: "Rego"}, widget, `C=Unknown ConditionRuleInvalid "unrecognized condition rule type Rego"`},

		"job complete":           {wellKnown, job(`{type: Complete, status: "True"}`), `Complete=True ConditionRuleEvaluated "Job is finished"`},
		"job failed":             {wellKnown, job(`{type: Suspended, status: "False"}, {type: Failed, status: "True"}`), `Complete=True ConditionRuleEvaluated "Job is finished"`},
		"job not yet":            {wellKnown, job(`{type: Complete, status: "False"}, {type: Suspended, status: "True"}`), `Complete=False ConditionRuleEvaluated "Job is not finished"`},
		"job without conditions": {wellKnown, "{apiVersion: batch/v1, kind: Job, metadata: {name: j}}", `Complete=False ConditionRuleEvaluated "Job is not finished"`},
		"pod succeeded":          {wellKnown, pod("Succeeded"), `Complete=True ConditionRuleEvaluated "Pod is in phase Succeeded"`},
		"pod failed":             {wellKnown, pod("Failed"), `Complete=True ConditionRuleEvaluated "Pod is in phase Failed"`},
		"pod running":            {wellKnown, pod("Running"), `Complete=False ConditionRuleEvaluated "Pod is in phase Running"`},
		"pod without status":     {wellKnown, "{apiVersion: v1, kind: Pod, metadata: {name: p}}", `Complete=False ConditionRuleEvaluated "Pod has no phase yet"`},
		"its message does not count": {with(wellKnown, "mine", ""), pod("Running"),
			`Complete=False ConditionRuleEvaluated "Pod is in phase Running"`},
		"its message expression does": {with(wellKnown, "mine", `result ? "over" : "on: " + object.status.phase`), pod("Running"),
			`Complete=False ConditionRuleEvaluated "on: Running"`},
		"and then the message": {with(wellKnown, "mine", `""`), pod("Running"), `Complete=False ConditionRuleEvaluated "mine"`},
		"other kind":           {wellKnown, widget, ""},
		"other version":        {wellKnown, "{apiVersion: batch/v1beta1, kind: Job, metadata: {name: j}}", ""},
		"other condition":      {workv1.ConditionRule{Condition: "Ready", Type: workv1.WellKnownConditionsType}, pod("Running"), ""},
		"no condition":         {workv1.ConditionRule{Type: workv1.CelConditionExpressionsType}, widget, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := []string{}
			if c.want != "" {
				want = append(want, c.want)
			}
			live := object(t, c.object)
			before := live.DeepCopy()
			got := e.Evaluate(context.Background(), []workv1.ConditionRule{c.rule}, live)
			if diff := cmp.Diff(want, lines(got)); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before.Object, live.Object); diff != "" {
				t.Errorf("the object was changed: %s", diff)
			}
			if types := ConditionTypes([]workv1.ConditionRule{c.rule}, live.GroupVersionKind()); len(types) != len(got) || len(got) > 0 && types[0] != got[0].Type {
				t.Errorf("the types are said to be %v", types)
			}
		})
	}
}

// TestEnvironment has an expression for each part of the environment. All are true.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	e, live := evaluator(t), object(t, widget)
	for _, expression := range []string{
		`object.status.conditions.exists(c, c.type == 'Complete' && c.status == "True")`,
		"object.status.conditions.filter(\n  c, c.type == 'Complete' || c.type == 'Failed'\n).exists(\n  c, c.status == 'True'\n)\n",
		`has(object.spec.replicas) && !has(object.spec.zz)`,
		`object.spec.ratio < 1 && object.spec.replicas > 2.5 && object.spec.nothing == null`,
		`timestamp("2026-01-02T03:04:05Z") - timestamp("2026-01-02T03:04:00Z") == duration("5s")`,
		`object.?spec.?zz.orValue(7) == 7 && object.spec[?"replicas"].hasValue() && [?object.?zz].size() == 0`,
		`"a-b".split("-").join("+").upperAscii().reverse() == "B+A" && "%s=%d".format(["x", 1]) == "x=1" && strings.quote("a") == "\"a\""`,
		`"abc".charAt(1) == "b" && "abcb".indexOf("b") == 1 && "abcb".lastIndexOf("b") == 3 && "aXa".replace("X", "--") == "a--a" && " a ".trim().substring(0, 1) == "a"`,
		`[1, 2, 3].sum() == 6 && [3, 1].min() == 1 && [3, 1].max() == 3 && [1, 2].isSorted() && [1, 2, 1].lastIndexOf(1) == 2 && ["a", "b"].indexOf("b") == 1`,
		`"a1b22".find("[0-9]+") == "1" && "a1b22".findAll("[0-9]+") == ["1", "22"] && "a1b22".findAll("[0-9]", 1).size() == 1 && "ab".matches("^a")`,
		`url("https://h:8/p?q=1").getPort() == "8" && isURL("http://a")`,
		`quantity("1Gi").isGreaterThan(quantity("1M")) && isQuantity("1")`,
		`ip("10.0.0.1").family() == 4 && isIP("::1")`,
		`cidr("10.0.0.0/8").containsIP("10.1.2.3") && isCIDR("10.0.0.0/8")`,
		`!format.dns1123Label().validate("name").hasValue() && format.named("uuid").hasValue()`,
		`semver("1.2.3").isLessThan(semver("1.10.0")) && isSemver("1.0.0")`,
		`hasConditions(object.status) && !hasConditions({"conditions": object.status.none}) && !hasConditions(object.spec) && !hasConditions(object.metadata.name) && !hasConditions({"conditions": 1})`,
		`3 in object.spec.list && !(4 in object.spec.list) && "a" in object.metadata.labels && object.spec.replicas in [1, 3]`,
		`object.spec.list == [1, 2, 3] && object.spec.list != [1, 2] && object.metadata.labels == {"a": "b"}`,
	} {
		got := e.Evaluate(context.Background(), []workv1.ConditionRule{celRule(expression)}, live)
		if diff := cmp.Diff([]string{`C=True ConditionRuleEvaluated "Manifest is C"`}, lines(got)); diff != "" {
			t.Errorf("%s: %s", expression, diff)
		}
	}
	// What others have, and this environment does not.
	for _, expression := range []string{`math.greatest(1, 2) == 2`, `sets.contains([1], [1])`, `cel.bind(x, 1, x == 1)`, `authorizer == null`, `[[1]].flatten() == [1]`} {
		got := e.Evaluate(context.Background(), []workv1.ConditionRule{celRule(expression)}, live)
		if got[0].Reason != workv1.ReasonConditionRuleExpressionError || !strings.Contains(got[0].Message, "undeclared reference") {
			t.Errorf("%s: %v", expression, lines(got))
		}
	}
}

func TestOrderAndRepeatedConditions(t *testing.T) {
	t.Parallel()
	named := func(name string, expressions ...string) workv1.ConditionRule {
		rule := celRule(expressions...)
		rule.Condition = name
		return rule
	}
	rules := []workv1.ConditionRule{
		named("B", "false"), named("A", "true"), named("C", "true"), named("B", "true"),
		{Condition: "A", Type: workv1.WellKnownConditionsType}, // sets no condition
		{Condition: "Complete", Type: workv1.WellKnownConditionsType},
	}
	live := object(t, "{apiVersion: v1, kind: Pod, metadata: {name: p}, status: {phase: Failed}}")
	want := []string{
		`B=True ConditionRuleEvaluated "Manifest is B"`,
		`A=True ConditionRuleEvaluated "Manifest is A"`,
		`C=True ConditionRuleEvaluated "Manifest is C"`,
		`Complete=True ConditionRuleEvaluated "Pod is in phase Failed"`,
	}
	got := evaluator(t).Evaluate(context.Background(), rules, live)
	if diff := cmp.Diff(want, lines(got)); diff != "" {
		t.Error(diff)
	}
	for _, c := range got {
		if c.ObservedGeneration != 0 || !c.LastTransitionTime.IsZero() {
			t.Errorf("%+v", c)
		}
	}
	if diff := cmp.Diff([]string{"B", "A", "C", "Complete"}, ConditionTypes(rules, live.GroupVersionKind())); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"B", "A", "C"}, ConditionTypes(rules, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"})); diff != "" {
		t.Error(diff)
	}
	if got := evaluator(t).Evaluate(context.Background(), rules, nil); got != nil {
		t.Errorf("without an object: %v", lines(got))
	}
}

// TestBudget evaluates rules that each cost nearly what an expression may: together they are over the budget of the work.
func TestBudget(t *testing.T) {
	t.Parallel()
	costly := "object.long.contains(object.long)" // 900,000: cheap to do, but counted by the product of the lengths
	const fit, exceeded = 5, "the expressions of the work cost too much together"
	var rules []workv1.ConditionRule
	for i := range 10 {
		rule := celRule(costly)
		rule.Condition = fmt.Sprintf("C%02d", i)
		rules = append(rules, rule)
	}
	live := object(t, widget)
	live.Object["long"] = strings.Repeat("a", 9486)
	outcomes := func() (outcomes []string) {
		b, _ := budget.New(quota.New[wire.SourceID](quota.Config{Subsystem: "test"})).BeginTurn("hub", nil)
		for _, c := range evaluator(t).OfWork(b).Evaluate(context.Background(), rules, live) {
			outcomes = append(outcomes, fmt.Sprintf("%s %s %s", c.Status, c.Reason, strings.TrimSuffix(c.Message, c.Type)))
		}
		return outcomes
	}
	times := func(n int, outcome string) []string { return slices.Repeat([]string{outcome}, n) }
	want := append(times(fit, "True ConditionRuleEvaluated Manifest is "), times(10-fit, "False ConditionRuleExpressionError "+exceeded)...)
	if diff := cmp.Diff(want, outcomes()); diff != "" {
		t.Error(diff)
	}

	// Messages count as well, but change the result of no rule before them.
	for i := range rules {
		rules[i].CelExpressions, rules[i].MessageExpression = []string{"true"}, costly+` ? "costly" : ""`
	}
	want = slices.Concat(times(fit, "True ConditionRuleEvaluated costly"), times(1, "True ConditionRuleEvaluated "+exceeded),
		times(10-fit-1, "False ConditionRuleExpressionError "+exceeded))
	if diff := cmp.Diff(want, outcomes()); diff != "" {
		t.Error(diff)
	}
}

func TestContextEndStopsEvaluation(t *testing.T) {
	t.Parallel()
	e, live := evaluator(t), object(t, widget)
	ctx, cancel := context.WithCancel(context.Background())
	rules := []workv1.ConditionRule{celRule("true")}
	cancel()
	want := []string{`C=Unknown ConditionRuleInternalError "the evaluation was stopped: context canceled"`}
	if diff := cmp.Diff(want, lines(e.Evaluate(ctx, rules, live))); diff != "" {
		t.Error(diff)
	}

	// In the middle of an expression: the object ends the context when it is read.
	ten := "[1,2,3,4,5,6,7,8,9,10]"
	long := "object.read && " + ten + ".all(a, " + ten + ".all(b, " + ten + ".all(c, " + ten + ".all(d, true))))"
	p := compiled(t, e, long)
	ctx, cancel = context.WithCancel(context.Background())
	defer cancel()
	_, cost, err := p.Run(ctx, map[string]any{"object": func() any { cancel(); return map[string]any{"read": true} }}, maxCost)
	if err == nil || err.Error() != "operation interrupted" {
		t.Errorf("the expression went on to cost %d: %v", cost, err)
	}
}

func TestMessagesFitACondition(t *testing.T) {
	t.Parallel()
	e, live := evaluator(t), object(t, widget)
	live.Object["long"] = strings.Repeat("ä", 40_000)
	live.Object["broken"] = "a\xffb"
	got := e.Evaluate(context.Background(), []workv1.ConditionRule{with(celRule("true"), "", "object.long")}, live)
	if message := got[0].Message; len(message) > condition.MaxMessage || len(message) < condition.MaxMessage-30 || !utf8.ValidString(message) {
		t.Errorf("a message of %d bytes, valid: %v", len(message), utf8.ValidString(message))
	}
	got = e.Evaluate(context.Background(), []workv1.ConditionRule{with(celRule("true"), "", "object.broken")}, live)
	if got[0].Message != "ab" {
		t.Errorf("%q", got[0].Message)
	}
}

// small returns an evaluator that keeps that many programs.
func small(t *testing.T, size int) *Evaluator {
	t.Helper()
	programs, err := newPrograms(size)
	if err != nil {
		t.Fatal(err)
	}
	return &Evaluator{programs: programs}
}

// compiled returns the program of an expression.
func compiled(t *testing.T, e *Evaluator, text string) *expression.Program {
	t.Helper()
	compile, _ := e.programs.find(source{text: text})
	p, err := compile()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProgramsAreCompiledOnceAndBounded(t *testing.T) {
	t.Parallel()
	e := small(t, 2)
	fault := func(src source) error {
		compile, _ := e.programs.find(src)
		_, err := compile()
		return err
	}
	a, bad := compiled(t, e, "1 == 1"), fault(source{text: "foo"})
	if compiled(t, e, "1 == 1") != a || fault(source{text: "foo"}) != bad || bad == nil { //nolint:errorlint // the same one
		t.Error("a program was compiled again")
	}
	if fault(source{text: "foo", message: true}) == bad { //nolint:errorlint // the same one
		t.Error("a message expression has the program of an expression")
	}
	if n := e.programs.cache.Len(); n != 2 {
		t.Errorf("%d programs are kept", n)
	}
	if compiled(t, e, "1 == 1") == a {
		t.Error("what was used least recently is kept")
	}
}

func TestConcurrentUse(t *testing.T) {
	t.Parallel()
	e := small(t, 3)
	live := object(t, widget)
	var group sync.WaitGroup
	for i := range 8 {
		group.Go(func() {
			for j := range 50 {
				want := (i+j)%5 == 3
				rule := with(celRule(fmt.Sprintf("object.spec.replicas == %d", (i+j)%5)), "", `object.metadata.name + string(result)`)
				got := e.Evaluate(context.Background(), []workv1.ConditionRule{rule}, live)
				if (got[0].Status == metav1.ConditionTrue) != want || got[0].Message != fmt.Sprintf("w%v", want) {
					t.Errorf("%v", lines(got))
				}
			}
		})
	}
	group.Wait()
}

func TestCheck(t *testing.T) {
	t.Parallel()
	of := func(kind workv1.ConditionRuleType, names ...string) []workv1.ConditionRule {
		var rules []workv1.ConditionRule
		for _, name := range names {
			rules = append(rules, workv1.ConditionRule{Condition: name, Type: kind})
		}
		return rules
	}
	for _, fine := range [][]workv1.ConditionRule{nil, of("CEL", "Complete", "example.com/Ready", "Progressing", "Complete"), of("WellKnownConditions", "", "Complete")} {
		if err := Validate(fine); err != nil {
			t.Errorf("%v: %v", fine, err)
		}
	}
	for _, name := range []string{"Applied", "Available", "StatusFeedbackSynced", "DeletionHeld", "SpecUntrusted", "Deleting", "Deleted", "Delivered"} {
		want := "conditionRules[1] sets the condition " + name + ", which the agent or the hub sets itself: name another condition, such as Complete"
		if err := Validate(of("CEL", "Complete", name)); err == nil || err.Error() != want {
			t.Errorf("%v", err)
		}
		if err := Validate(of("WellKnownConditions", name)); err == nil {
			t.Errorf("a well-known rule may set %s", name)
		}
	}
	for name, want := range map[string]string{
		"":                       "conditionRules[0] names no condition: set its condition, such as Complete",
		"is done":                `conditionRules[0] sets the condition "is done", which is no condition type: name one of at most 316 letters, digits, '-', '_' and '.', such as Complete`,
		strings.Repeat("a", 317): `conditionRules[0] sets the condition "` + strings.Repeat("a", 316) + `", which is no condition type: name one of at most 316 letters, digits, '-', '_' and '.', such as Complete`,
	} {
		if err := Validate(of("CEL", name)); err == nil || err.Error() != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestTooManyRules(t *testing.T) {
	rules := make([]workv1.ConditionRule, maxRules+1)
	for i := range rules {
		rules[i] = workv1.ConditionRule{Type: workv1.CelConditionExpressionsType, Condition: "Fine"}
	}
	if err := Validate(rules[1:]); err != nil {
		t.Errorf("%d rules: %v", maxRules, err)
	}
	if err := Validate(rules); err == nil || err.Error() != "there are 65 conditionRules, at most 64 are allowed" {
		t.Errorf("%d rules: %v", len(rules), err)
	}
}
