package workstate

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/workstate/condition"
)

// PhaseOfManifest returns how a manifest of a work is: [PhaseFailed], [PhaseProgressing], [PhaseApplied] or [PhaseReady].
func PhaseOfManifest(m *workv1.ManifestCondition) Phase {
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(m.Conditions, kind) }
	available, progressing, degraded := find(workv1.ManifestAvailable), find(workv1.ManifestProgressing), find(workv1.ManifestDegraded)
	switch {
	case is(find(workv1.ManifestApplied), metav1.ConditionFalse), is(degraded, metav1.ConditionTrue):
		return PhaseFailed
	case is(find(workv1.ManifestApplied), metav1.ConditionUnknown):
		return PhaseProgressing
	case is(find(workv1.ManifestComplete), metav1.ConditionTrue):
		return PhaseReady
	case available != nil && available.Status != metav1.ConditionTrue, progressing != nil && progressing.Status != metav1.ConditionFalse:
		return PhaseProgressing
	case progressing == nil && degraded == nil && !condition.ReadyOnceCreated(schema.GroupKind{Group: m.ResourceMeta.Group, Kind: m.ResourceMeta.Kind}):
		return PhaseApplied
	}
	return PhaseReady
}

// A look is for conditions of manifests of a type, any if it is empty, with a status.
type look struct {
	kind   string
	status metav1.ConditionStatus
	decide func(*Facts, *workv1.ManifestCondition, *metav1.Condition) *Blocker
}

// unready looks at objects that are not ready yet.
var unready = look{workv1.ManifestProgressing, metav1.ConditionTrue, readyBlocker}

// manifestBlocker looks at the conditions of the manifests, the worst first.
func manifestBlocker(f *Facts) *Blocker {
	for _, l := range []look{
		{workv1.ManifestApplied, metav1.ConditionFalse, applyBlocker},
		{workv1.ManifestDegraded, metav1.ConditionTrue, readyBlocker},
		{workv1.ManifestApplied, metav1.ConditionUnknown, waitBlocker},
		{workv1.ManifestAvailable, metav1.ConditionFalse, availableBlocker},
		{workv1.ManifestAvailable, metav1.ConditionUnknown, availableBlocker},
		unready,
		{"", metav1.ConditionUnknown, ruleBlocker},
		{"", metav1.ConditionFalse, ruleBlocker},
		{workv1.ManifestStatusFeedbackSynced, metav1.ConditionFalse, feedbackBlocker},
	} {
		var all alike
		l.at(f, &all)
		if len(all.list) > 0 && waits[all.list[0].Reason].cause != "" {
			unready.at(f, &all) // what is waited for
		}
		if b := all.blocker(); b != nil {
			return b
		}
	}
	return nil
}

// at adds what l sees to all.
func (l *look) at(f *Facts, all *alike) {
	entries := f.Work.Status.ResourceStatus.Manifests
	for i := range entries {
		for j := range entries[i].Conditions {
			c := &entries[i].Conditions[j]
			if c.Status != l.status || l.kind != "" && c.Type != l.kind {
				continue
			}
			if b := l.decide(f, &entries[i], c); b != nil {
				all.add(b, entries[i].ResourceMeta.Name)
			}
		}
	}
}

// warnings is [Facts.Warnings] of a work in [PhaseWarned].
func (s *State) warnings(f *Facts) *Blocker {
	if s.Phase != PhaseWarned {
		return nil
	}
	return f.Warnings()
}

// Warnings returns what the API server of the cluster, or the agent, has warned of in the newest spec; nil: nothing.
func (f *Facts) Warnings() *Blocker {
	applied := Current(f.Work, workv1.WorkApplied)
	if applied == nil {
		return nil
	}
	var all alike
	if text := condition.OwnWarnings(applied); text != "" {
		all.add(&Blocker{Cause: Warning, Object: f.workObject(), Reason: applied.Reason, Message: text, Do: f.fill(doWarning), Since: &applied.LastTransitionTime}, f.Work.Name)
	}
	for i := range f.Work.Status.ResourceStatus.Manifests {
		entry := &f.Work.Status.ResourceStatus.Manifests[i]
		c := meta.FindStatusCondition(entry.Conditions, workv1.ManifestApplied)
		if text := condition.Warnings(c); text != "" {
			b := f.manifest(Warning, entry, c, doWarning)
			b.Message = text
			all.add(b, entry.ResourceMeta.Name)
		}
	}
	return all.blocker()
}

// alike are blockers of manifests, those with the same cause and message together.
type alike struct {
	list []*Blocker
	by   map[string]*Blocker
}

// add adds the blocker of the object with this name, which messages of API servers quote.
func (a *alike) add(b *Blocker, name string) {
	key := string(b.Cause) + " " + strings.ReplaceAll(b.Message, strconv.Quote(name), "it")
	first := a.by[key]
	switch {
	case first == nil:
		if a.by == nil { // most works have no blocker
			a.by = map[string]*Blocker{}
		}
		a.by[key] = b
		a.list = append(a.list, b)
	case first.Object != b.Object:
		first.More++
	}
}

// blocker returns the first one, with the others; nil if there is none.
func (a *alike) blocker() *Blocker {
	if len(a.list) == 0 {
		return nil
	}
	for _, other := range a.list[1:] {
		a.list[0].Others = append(a.list[0].Others, *other)
	}
	return a.list[0]
}

func (f *Facts) manifest(cause Cause, entry *workv1.ManifestCondition, c *metav1.Condition, do string) *Blocker {
	m := entry.ResourceMeta
	version := schema.GroupVersion{Group: m.Group, Version: m.Version}.String()
	executor, mayDo := f.executor(m.Namespace)
	do = strings.NewReplacer("{executor}", executor, "{mayDo}", mayDo, "{object}", ObjectName(m), "{apiVersion}", version, "{get}", kubectl("get", m, ""), "{describe}", kubectl("describe", m, "")).Replace(do)
	message := cmp.Or(c.Message, c.Reason)
	if cause == UnknownKind { // the API server names the kind alone
		message += " in " + version
	}
	return &Blocker{OfManifest: true, Cause: cause, Object: ObjectName(m), Reason: c.Reason, Message: message, Do: f.fill(do), Since: &c.LastTransitionTime}
}

// executor names the executor of the work, and says how to see what it may do in a namespace, which may be empty.
func (f *Facts) executor(namespace string) (name, mayDo string) {
	e := f.Work.Spec.Executor
	if e == nil || e.Subject.ServiceAccount == nil {
		return "the executor of the work", ""
	}
	account := e.Subject.ServiceAccount
	mayDo = fmt.Sprintf(". What it may do, on {cluster}: kubectl auth can-i --list --as=system:serviceaccount:%s:%s", account.Namespace, account.Name)
	if namespace != "" {
		mayDo += " -n " + namespace
	}
	return fmt.Sprintf("ServiceAccount %s/%s, the executor of the work,", account.Namespace, account.Name), mayDo
}

func applyBlocker(f *Facts, entry *workv1.ManifestCondition, c *metav1.Condition) *Blocker {
	switch c.Reason {
	case workv1.ReasonFlapping:
		return f.manifest(Flapping, entry, c, doFlapping)
	case workv1.ReasonHookFailed:
		return f.manifest(HookFailed, entry, c, doHookFailed)
	}
	for _, s := range applySigns {
		if s.pattern.MatchString(c.Message) {
			return f.manifest(s.cause, entry, c, s.do)
		}
	}
	return f.manifest(NotApplied, entry, c, doNotApplied)
}

// waits maps the reasons of what is not applied yet.
var waits = map[string]struct {
	cause Cause
	do    string
}{
	workv1.ReasonWaitsForWave: {WaitsForWave, doWaits},
	workv1.ReasonWaitsForHook: {WaitsForHook, doWaits},
	workv1.ReasonWaitsForWork: {WaitsForWork, doWaits},
	workv1.ReasonStaged:       {Staged, doStaged},
	workv1.ReasonWindowMissed: {WindowMissed, doWindowMissed},
}

// wait returns what a condition waits for, and what to do; empty if it does not wait.
func (f *Facts) wait(c *metav1.Condition) (Cause, string) {
	w := waits[c.Reason]
	switch w.cause {
	case Staged:
		if f.Work.Annotations[workv1.ApplyAtAnnotationKey] == workv1.ApplyAtHeld {
			return w.cause, doStagedHeld
		}
	case WindowMissed:
		if strings.Contains(c.Message, condition.WindowWasOver) {
			return w.cause, doWindowOver
		}
	case WaitsForWork:
		return w.cause, cmp.Or(doAbsent(c.Message), w.do)
	}
	return w.cause, w.do
}

// absentWork matches what the agent says of a work that it does not have.
var absentWork = regexp.MustCompile(`work ([^;]+?) is not on this cluster`)

// IsAbsent reports whether the message of a work that waits for others says that there is no work of this name on its cluster.
func IsAbsent(message, name string) bool {
	return slices.ContainsFunc(absentWork.FindAllStringSubmatch(message, -1), func(match []string) bool { return match[1] == name })
}

// doAbsent returns what to do about works that are not on the cluster; empty if the message names none.
func doAbsent(message string) string {
	var names []string
	for _, match := range absentWork.FindAllStringSubmatch(message, -1) {
		names = append(names, match[1])
	}
	if len(names) == 0 {
		return ""
	}
	return fmt.Sprintf(doNoWork, strings.Join(names, ", "))
}

// waitBlocker looks at manifests that wait for others.
func waitBlocker(f *Facts, entry *workv1.ManifestCondition, c *metav1.Condition) *Blocker {
	cause, do := f.wait(c)
	if cause == "" {
		return nil
	}
	return f.manifest(cause, entry, c, do)
}

func readyBlocker(f *Facts, entry *workv1.ManifestCondition, c *metav1.Condition) *Blocker {
	for _, s := range readySigns {
		if s.pattern.MatchString(c.Message) {
			return f.manifest(s.cause, entry, c, s.do)
		}
	}
	cause, do := NotReady, doNotReady
	if c.Type == workv1.ManifestDegraded {
		cause, do = Failed, doFailed
	}
	switch entry.ResourceMeta.Kind {
	case "Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job":
		do += doPods
	}
	return f.manifest(cause, entry, c, do)
}

func availableBlocker(f *Facts, entry *workv1.ManifestCondition, c *metav1.Condition) *Blocker {
	switch {
	case c.Status == metav1.ConditionFalse:
		return f.manifest(Missing, entry, c, doMissing)
	case c.Reason == workv1.ReasonIncompleteResourceMeta:
		return f.manifest(UnknownKind, entry, c, doUnknownMeta)
	case strings.Contains(c.Message, "may not get it"):
		return f.manifest(ExecutorDenied, entry, c, doExecutorGet)
	case strings.Contains(c.Message, "is forbidden"):
		return f.manifest(Forbidden, entry, c, doUnreadable)
	}
	return f.manifest(Unreadable, entry, c, doUnreadable)
}

// ruleBlocker looks at rules that could not be evaluated.
func ruleBlocker(f *Facts, entry *workv1.ManifestCondition, c *metav1.Condition) *Blocker {
	switch c.Reason {
	case workv1.ReasonConditionRuleExpressionError, workv1.ReasonConditionRuleInternalError, workv1.ReasonConditionRuleInvalid:
		return f.manifest(budgetOr(InvalidRule, c.Message), entry, c, doRule)
	}
	return nil
}

func feedbackBlocker(f *Facts, entry *workv1.ManifestCondition, c *metav1.Condition) *Blocker {
	return f.manifest(budgetOr(InvalidRule, c.Message), entry, c, doFeedback)
}

func budgetOr(cause Cause, message string) Cause {
	if strings.Contains(message, "budget") || strings.Contains(message, "cost limit") {
		return Budget
	}
	return cause
}

// ObjectName names the object of a manifest, such as "Deployment default/web".
func ObjectName(m workv1.ManifestResourceMeta) string {
	kind := cmp.Or(m.Kind, m.Resource, fmt.Sprintf("manifest %d", m.Ordinal))
	if m.Namespace == "" {
		return strings.TrimSpace(kind + " " + m.Name)
	}
	return fmt.Sprintf("%s %s/%s", kind, m.Namespace, m.Name)
}

// kubectl returns a command about the object of a manifest.
func kubectl(verb string, m workv1.ManifestResourceMeta, more string) string {
	resource := cmp.Or(m.Resource, strings.ToLower(m.Kind))
	if m.Group != "" {
		resource += "." + m.Group
	}
	text := "kubectl " + verb
	if m.Namespace != "" {
		text += " -n " + m.Namespace
	}
	return strings.TrimSpace(text + " " + resource + " " + m.Name + " " + more)
}
