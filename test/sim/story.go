package sim

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	"github.com/workwire/workwire/pkg/wire"
	"github.com/workwire/workwire/test/sim/kubeapi"
)

// Lanes that are no programs, and how those of programs and API servers begin.
const (
	people, faults, brokerLane = "people", "faults", "broker"
	agentLane, apiLane         = "agent of ", "API of "
	// check is the actor of what is found to be wrong.
	check = "check"
)

// Kinds of steps.
const (
	messageStep, writeStep, changeStep, faultStep, logStep, wrongStep = "message", "write", "change", "fault", "log", "wrong"
)

// step is a sentence of the story.
type step struct {
	At    string   `json:"at"`
	Kind  string   `json:"kind"`
	From  string   `json:"from"`         // its lane
	To    string   `json:"to,omitempty"` // the lane that it has an effect on
	Text  string   `json:"text"`
	Works []string `json:"works,omitempty"` // as cluster/name
}

func (s *step) String() string {
	if s.Kind == wrongStep {
		return s.At + "  WRONG: " + s.Text
	}
	return s.At + "  " + s.Text
}

// teller turns the entries of a trace into sentences. It remembers what they have said.
type teller struct {
	names     map[string]string        // of works, as cluster/name, by UID
	lives     map[string]int           // how many works of a name there have been
	life      map[string]int           // which of them a UID was
	newest    map[string]*declarations // by cluster/name
	declared  map[string]declaredIn    // by cluster/object/value
	published map[string]string        // when messages were, by id
}

// declarations are what people want of a work.
type declarations struct {
	generation int64
	deleted    string // when; empty: it is not
}

// declaredIn is where a value of an object comes from.
type declaredIn struct {
	uid        string
	generation int64
}

// story returns what happened as sentences.
func (t *trace) story() []step {
	teller := &teller{
		names: map[string]string{}, lives: map[string]int{}, life: map[string]int{}, newest: map[string]*declarations{},
		declared: map[string]declaredIn{}, published: map[string]string{},
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var steps []step
	for i := range t.entries {
		s := teller.tell(&t.entries[i])
		s.At = t.entries[i].at.UTC().Format(clock)
		steps = append(steps, s)
	}
	return steps
}

func (t *teller) tell(e *entry) step {
	switch {
	case e.event != nil:
		return t.tellMessage(e)
	case e.write != nil:
		return t.tellWrite(e)
	case e.actor == "log":
		return t.tellLog(e.what)
	case e.actor == check:
		text := t.withNames(e.what)
		return step{Kind: wrongStep, From: check, Text: text, Works: worksIn(text)}
	case e.actor == brokerLane:
		return step{Kind: faultStep, From: faults, To: brokerLane, Text: "the broker " + e.what}
	case hubIn.MatchString(e.actor) || clusterOnly.MatchString(e.actor) || sourceIn.MatchString(e.actor):
		return step{Kind: faultStep, From: faults, To: actorOf(e.actor), Text: replica(e.actor) + " " + e.what, Works: worksIn(e.what)}
	case e.actor == people:
		return step{Kind: changeStep, From: people, Text: e.what}
	}
	return step{Kind: faultStep, From: faults, Text: e.actor + ": " + e.what, Works: worksIn(e.what)}
}

var (
	clusterOnly = regexp.MustCompile(`^cluster\d+$`)
	sourceIn    = regexp.MustCompile(`^ops\d$`)
	hubIn       = regexp.MustCompile(`^hub(\d|-b)?$`)
	clusterIn   = regexp.MustCompile(`\bcluster\d+\b`)
	workIn      = regexp.MustCompile(`\bwork\d+\b`)
	uidIn       = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	unusual     = regexp.MustCompile(`, (late|again|astray|retained)$`) // ways in which a message is received
	logField    = regexp.MustCompile(`(\w+)=("(?:[^"\\]|\\.)*"|\S*)`)
)

// worksIn returns the works that a text names: it names clusters, and works or objects.
func worksIn(text string) []string {
	clusters := slices.Compact(slices.Sorted(slices.Values(clusterIn.FindAllString(text, -1))))
	var works []string
	for _, c := range clusters {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(workIn.FindAllString(text, -1)))) {
			works = append(works, c+"/"+name)
		}
	}
	return works
}

// workOf returns the work, as cluster/name, that an object on the API server of an actor belongs to, empty if to none.
func workOf(actor, kind string, o *kubeapi.Object) string {
	name := workIn.FindString(o.GetName())
	switch {
	case name == "":
		return ""
	case kind == "ManifestWork":
		return o.GetNamespace() + "/" + name
	}
	return actor + "/" + name
}

// actorOf returns the name in the story of a program, by its name or by its id at the broker.
func actorOf(program string) string {
	if cluster := clusterIn.FindString(program); cluster != "" {
		return agentLane + cluster
	}
	if sourceIn.MatchString(program) {
		return "source " + program
	}
	return "hub"
}

// replica names one of several programs in a sentence.
func replica(program string) string {
	if program == "hub2" {
		return "the second replica of the hub"
	}
	return the(program)
}

// the is the program of actorOf in a sentence.
func the(program string) string {
	if strings.HasSuffix(program, "hub-b") {
		return "the hub of shard b"
	}
	return "the " + actorOf(program)
}

func (t *teller) tellMessage(e *entry) step {
	program, s := actorOf(e.actor), step{Kind: messageStep}
	meaning, works := t.meaning(e)
	s.Works = works
	at := e.at.UTC().Format(clock)
	switch e.verb {
	case "publishes":
		t.published[e.event.ID()] = at
		s.From, s.To, s.Text = program, brokerLane, the(e.actor)+" publishes "+meaning
		if !strings.HasSuffix(e.what, ": <nil>") {
			s.Text, s.To = the(e.actor)+" cannot publish "+meaning, ""
		}
	case "receives":
		s.From, s.To, s.Text = brokerLane, program, the(e.actor)+" receives "+meaning
		if at := t.published[e.event.ID()]; unusual.MatchString(e.what) {
			s.Text += e.what[strings.LastIndex(e.what, ","):] + ": it was published at " + at
		}
	default:
		_, to, _ := strings.Cut(e.what[strings.LastIndex(e.what, " to "):], " to ")
		s.Kind, s.From, s.To = faultStep, faults, brokerLane
		s.Text = fmt.Sprintf("the broker %s on its way to %s: %s", e.verb, the(to), meaning)
	}
	return s
}

// meaning returns what a message says, and about which works.
func (t *teller) meaning(e *entry) (string, []string) {
	m, err := wire.Decode(*e.event)
	if err != nil {
		return fmt.Sprintf("a message of type %s that cannot be read: %v", e.event.Type(), err), nil
	}
	about := func(uid string, text string, args ...any) (string, []string) {
		works := []string{}
		if name := t.names[uid]; name != "" {
			works = append(works, name)
		}
		return fmt.Sprintf(text, args...), works
	}
	switch m := m.(type) {
	case *wire.Spec:
		return about(string(m.UID), "%s", t.specMeaning(m))
	case *wire.SpecDelta:
		return about(string(m.Of.UID), "what has changed in generation %d of work %s", m.Of.Generation, t.work(string(m.Of.UID)))
	case *wire.Status:
		return about(string(m.UID), "the status of work %s, %s", t.work(string(m.UID)), conditions(m.Status.Conditions))
	case *wire.StatusDelta:
		return about(string(m.Of.UID), "what has changed in the status of work %s, for generation %d", t.work(string(m.Of.UID)), m.Of.Generation)
	case *wire.SpecResync:
		return "which specs " + the(string(m.Cluster)) + " has, and asks for others: " + list(m.Versions, func(v wire.SpecVersion) string {
			return t.version(string(v.UID), v.Generation)
		}), nil
	case *wire.StatusResync:
		return "which statuses the hub has, and asks for others: " + list(m.Hashes, func(v wire.StatusVersion) string {
			return t.version(string(v.UID), v.Generation)
		}), nil
	case *wire.Digest:
		return "a digest of the works of " + string(m.Cluster), nil
	case *wire.Presence:
		if m.Present {
			return "that " + the(string(m.Cluster)) + " is there", nil
		}
		return "that " + the(string(m.Cluster)) + " is not there", nil
	case *wire.Instance:
		return "that the hub is there", nil
	}
	return fmt.Sprintf("a message of type %s", e.event.Type()), nil
}

func (t *teller) specMeaning(m *wire.Spec) string {
	if m.IsDeletion() {
		return fmt.Sprintf("the deletion of work %s", t.work(string(m.UID)))
	}
	return fmt.Sprintf("generation %d of work %s: %s", m.Generation, t.work(string(m.UID)), manifests(&workv1.ManifestWork{Spec: workv1.ManifestWorkSpec{
		Workload: workv1.ManifestsTemplate{Manifests: m.Bundle.Manifests}, ManifestConfigs: m.Bundle.ManifestConfigs, DeleteOption: m.Bundle.DeleteOption,
	}}))
}

// version says which generation of a work there is; nothing of what is in a list to probe the other side.
func (t *teller) version(uid string, generation wire.Generation) string {
	if t.names[uid] == "" {
		return ""
	}
	if generation == 0 {
		return t.work(uid)
	}
	return fmt.Sprintf("%s generation %d", t.work(uid), generation)
}

// list says something of each item that there is something to say of.
func list[T any](items []T, say func(T) string) string {
	var said []string
	for _, item := range items {
		if text := say(item); text != "" {
			said = append(said, text)
		}
	}
	if len(said) == 0 {
		return "none"
	}
	return strings.Join(said, ", ")
}

// work names the work with a UID, and says which of several of that name it is.
func (t *teller) work(uid string) string {
	name := t.names[uid]
	if name == "" {
		return uid + " (which there is not)"
	}
	if t.lives[name] > 1 {
		return fmt.Sprintf("%s (number %d of that name)", name, t.life[uid])
	}
	return name
}

// withNames replaces UIDs by the names of works.
func (t *teller) withNames(text string) string {
	return uidIn.ReplaceAllStringFunc(text, func(uid string) string {
		if t.names[uid] == "" {
			return uid
		}
		return t.work(uid)
	})
}

// manifests says which values ConfigMaps are to have, and what is unusual about that.
func manifests(work *workv1.ManifestWork) string {
	values := declared(work)
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		parts = append(parts, name+" = "+values[name])
	}
	return strings.Join(parts, ", ") + terms(work)
}

// conditions says what is true for which generation, and why the rest is not.
func conditions(list []metav1.Condition) string {
	said := map[int64][]string{}
	for i := range list {
		c := &list[i]
		text := c.Type
		if c.Status != metav1.ConditionTrue {
			reason, _, _ := strings.Cut(c.Message, ":")
			text = fmt.Sprintf("not %s (%s)", c.Type, strings.TrimSuffix(reason, "."))
		}
		said[c.ObservedGeneration] = append(said[c.ObservedGeneration], text)
	}
	var parts []string
	for _, generation := range slices.Sorted(maps.Keys(said)) {
		parts = append(parts, fmt.Sprintf("for generation %d: %s", generation, strings.Join(said[generation], ", ")))
	}
	if len(parts) == 0 {
		return "no conditions"
	}
	return strings.Join(parts, "; ")
}

func (t *teller) tellWrite(e *entry) step {
	w, api := e.write, apiLane+e.actor
	s := step{Kind: writeStep, From: api, To: api}
	who := "the garbage collector"
	switch w.User {
	case "agent":
		s.From, who = agentLane+e.actor, "the "+agentLane+e.actor
	case "hub":
		s.From, who = "hub", "the hub"
	case sourceProgram:
		s.From, who = sourceProgram, "the source "+sourceProgram
	case people:
		s.From, s.Kind, who = people, changeStep, "somebody"
	}
	o := w.After
	if o == nil {
		o = w.Before
	}
	if work := workOf(e.actor, w.Kind.Kind, o); work != "" {
		s.Works = []string{work}
	}
	switch w.Kind.Kind {
	case "ManifestWork":
		s.Text = who + " " + t.workWrite(e, w, o)
	case "ConfigMap":
		s.Text = who + " " + t.objectWrite(e.actor, w, o)
	case "AppliedManifestWork":
		s.Text = fmt.Sprintf("%s %s the AppliedManifestWork of work %s", who, verb(w), t.work(o.GetAnnotations()[uidAnnotation]))
	default:
		s.Text = fmt.Sprintf("%s %s %s %s", who, verb(w), w.Kind.Kind, strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/"))
	}
	return s
}

func verb(w *kubeapi.Write) string {
	switch {
	case w.Before == nil:
		return "creates"
	case w.After == nil:
		return "removes"
	case w.Before.GetDeletionTimestamp() == nil && w.After.GetDeletionTimestamp() != nil:
		return "begins to delete"
	}
	return "changes"
}

// workWrite says how a work at the hub has changed, and remembers it.
func (t *teller) workWrite(e *entry, w *kubeapi.Write, o *kubeapi.Object) string {
	uid, name := string(o.GetUID()), o.GetNamespace()+"/"+o.GetName()
	if t.names[uid] == "" {
		t.lives[name]++
		t.names[uid], t.life[uid] = name, t.lives[name]
		t.newest[name] = &declarations{}
	}
	if w.After == nil {
		return "removes work " + t.work(uid) + ": it is gone"
	}
	newest := t.newest[name]
	newest.generation = o.GetGeneration()
	work := workFrom(o)
	switch {
	case w.Before == nil, w.After.GetDeletionTimestamp() == nil && w.Before.GetGeneration() != w.After.GetGeneration():
		t.declare(work)
		return fmt.Sprintf("%s work %s, generation %d: %s", verb(w), t.work(uid), o.GetGeneration(), manifests(work))
	case verb(w) == "begins to delete":
		newest.deleted = e.at.UTC().Format(clock)
		return "deletes work " + t.work(uid)
	case len(w.Before.GetFinalizers()) < len(w.After.GetFinalizers()):
		return "sets its finalizer on work " + t.work(uid)
	}
	return fmt.Sprintf("writes the status of work %s, %s", t.work(uid), conditions(work.Status.Conditions))
}

// workFrom returns a work; nil for nil.
func workFrom(o *kubeapi.Object) *workv1.ManifestWork {
	if o == nil {
		return nil
	}
	work := &workv1.ManifestWork{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, work); err != nil {
		panic(err)
	}
	return work
}

// declare remembers where values come from.
func (t *teller) declare(work *workv1.ManifestWork) {
	for object, value := range declared(work) {
		t.declared[work.Namespace+"/"+object+"/"+value] = declaredIn{string(work.UID), work.Generation}
	}
}

// objectWrite says how a ConfigMap has changed, and what of a work that is.
func (t *teller) objectWrite(cluster string, w *kubeapi.Write, o *kubeapi.Object) string {
	text := verb(w) + " ConfigMap " + o.GetName()
	value := valueOf(w.After)
	if value == "" {
		return text + t.remark(cluster+"/"+workIn.FindString(o.GetName()), 0)
	}
	text += " = " + value
	before := valueOf(w.Before)
	if before != "" && before != value {
		text += ", which was " + before
	}
	if before == value {
		return text
	}
	from, known := t.declared[cluster+"/"+o.GetName()+"/"+value]
	if _, err := strconv.Atoi(value); err != nil || !known {
		return text
	}
	text += fmt.Sprintf(": generation %d of work %s", from.generation, t.work(from.uid))
	name := t.names[from.uid]
	if t.life[from.uid] < t.lives[name] {
		return text + ", after there is another of that name"
	}
	return text + t.remark(name, from.generation)
}

// remark says what people want of a work, unless it is this generation; 0: none.
func (t *teller) remark(work string, generation int64) string {
	switch newest := t.newest[work]; {
	case newest == nil:
		return ""
	case newest.deleted != "":
		return ", after the deletion of the work at " + newest.deleted
	case generation > 0 && newest.generation > generation:
		return fmt.Sprintf(", after generation %d has come", newest.generation)
	}
	return ""
}

func valueOf(o *kubeapi.Object) string {
	if o == nil {
		return ""
	}
	data, _ := o.Object["data"].(map[string]any)
	value, _ := data["value"].(string)
	return value
}

// tellLog returns a line of a program's log.
func (t *teller) tellLog(line string) step {
	s := step{Kind: logStep, From: "hub"}
	level, message := "", ""
	var rest []string
	for _, field := range logField.FindAllStringSubmatch(line, -1) {
		value := field[2]
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		}
		switch field[1] {
		case "time":
		case "level":
			level = value
		case "msg":
			message = value
		case "program":
			s.From = actorOf(value)
		case "uid":
			if name := t.names[value]; name != "" {
				s.Works = []string{name}
			}
		default:
			rest = append(rest, field[0])
		}
	}
	s.Text = t.withNames(fmt.Sprintf("the %s logs %s %q %s", s.From, level, message, strings.Join(rest, " ")))
	if len(s.Works) == 0 {
		s.Works = worksIn(s.Text)
	}
	return s
}

// firstWrong returns the first wrong state of a story, with its time, and what had happened to its work until then.
// It is empty if nothing is wrong.
func firstWrong(steps []step) []string {
	at := slices.IndexFunc(steps, func(s step) bool { return s.Kind == wrongStep })
	if at < 0 {
		return nil
	}
	wrong := &steps[at]
	lines := []string{"The first wrong state, at " + wrong.At + ": " + wrong.Text}
	if len(wrong.Works) == 0 {
		return lines
	}
	var before []string
	began := false
	for i := range steps[:at] {
		s := &steps[i]
		own := slices.ContainsFunc(s.Works, func(work string) bool { return slices.Contains(wrong.Works, work) })
		began = began || own
		if s.Kind != logStep && (own || began && s.Kind == faultStep && touches(s, wrong.Works)) {
			before = append(before, "  "+s.String())
		}
	}
	lines = append(lines, "", fmt.Sprintf("What had happened to %s until then, and what was broken (the last %d of %d steps):",
		strings.Join(wrong.Works, ", "), min(len(before), maxBefore), len(before)))
	return append(lines, before[max(0, len(before)-maxBefore):]...)
}

// touches reports whether a fault is one of no cluster, or of the cluster of one of the works, but of no other work.
func touches(s *step, works []string) bool {
	clusters := clusterIn.FindAllString(s.Text, -1)
	return len(s.Works) == 0 && (len(clusters) == 0 || slices.ContainsFunc(works, func(work string) bool {
		cluster, _, _ := strings.Cut(work, "/")
		return slices.Contains(clusters, cluster)
	}))
}

// maxBefore is how many steps before the first wrong state are told again.
const maxBefore = 40
