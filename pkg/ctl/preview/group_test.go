package preview

import (
	"fmt"
	"strings"
	"testing"

	"github.com/workwire/workwire/pkg/wire"
)

// object parses "Changed ns/name path:from>to ...", with messages after "#".
func object(text string) wire.DryRunObject {
	text, message, _ := strings.Cut(text, "#")
	words := strings.Fields(text)
	o := wire.DryRunObject{APIVersion: "v1", Kind: "ConfigMap", Result: wire.DryRunResult(words[0]), Message: message}
	o.Namespace, o.Name, _ = strings.Cut(words[1], "/")
	for _, field := range words[2:] {
		path, values, _ := strings.Cut(field, ":")
		from, to, _ := strings.Cut(values, ">")
		o.Fields = append(o.Fields, wire.DryRunField{Path: path, From: from, To: to})
	}
	return o
}

// answers returns the answer of a cluster with objects of such texts.
func answers(cluster string, objects ...string) Result {
	r := Result{Cluster: cluster, State: Answered}
	for _, text := range objects {
		r.Objects = append(r.Objects, object(text))
	}
	return r
}

// describe formats groups, a line each: "a b: Changed ns/name path:from>to, …".
func describe(groups []Group) string {
	lines := make([]string, 0, len(groups))
	for _, g := range groups {
		texts := []string{}
		if g.State != Answered {
			texts = append(texts, string(g.State)+"#"+g.Message)
		}
		for _, o := range g.Objects {
			text := string(o.Result) + " " + o.Namespace + "/" + o.Name
			for _, f := range o.Fields {
				text += fmt.Sprintf(" %s:%s>%s", f.Path, f.From, f.To)
			}
			if o.Message != "" {
				text += "#" + o.Message
			}
			texts = append(texts, text)
		}
		lines = append(lines, strings.Join(g.Clusters, " ")+": "+strings.Join(texts, ", "))
	}
	return strings.Join(lines, "\n")
}

func TestGroups(t *testing.T) {
	var many, few []Result
	for i := range 7 {
		r := answers(fmt.Sprint("c", i), fmt.Sprintf(`Changed c%d/a data.k:"%d">"%d" data.j:"x">"y" data.n:>"c%d" data.o:"c%d">`, i, i, i+1, i, i))
		if many = append(many, r); i < 5 {
			few = append(few, answers(fmt.Sprint("c", i), fmt.Sprintf(`Changed ns/a data.k:"1">"%d"`, i)))
		}
	}
	for name, c := range map[string]struct {
		results []Result
		want    string
	}{
		"nothing":     {},
		"all alike":   {[]Result{answers("b", `Changed ns/a k:1>2`), answers("a", `Changed ns/a k:1>2`)}, "a b: Changed ns/a k:1>2"},
		"not alike":   {[]Result{answers("a", `Changed ns/a k:1>2`), answers("b", `Changed ns/a k:0>2`)}, "a: Changed ns/a k:1>2\nb: Changed ns/a k:0>2"},
		"not asked":   {[]Result{{Cluster: "b", State: NotAsked}, answers("a", "Created ns/a")}, "a: Created ns/a"},
		"two for one": {[]Result{answers("a", "Created ns/a"), answers("a", "Created ns/a")}, "a: Created ns/a"},
		"deletions, changes, refusals, failures, nothing, away": {[]Result{
			{Cluster: "z", State: Away, Message: "since then"}, {Cluster: "b", State: NotAccepted}, answers("c", "Unchanged ns/a", "ReadOnly ns/b"), {Cluster: "d", State: Failed, Message: "m"},
			answers("e", "Refused ns/a#no"), answers("f", "Changed ns/a"), answers("g", "Created ns/a", "Refused ns/b#no", "Removed ns/z"), answers("h", "Created ns/a"), answers("i", "Created ns/a"),
		}, "g: Removed ns/z, Refused ns/b#no, Created ns/a\nh i: Created ns/a\nf: Changed ns/a\ne: Refused ns/a#no\nd: Failed#m\nc: \nz: Away#\nb: NotAccepted#"},
		"deleted to be created again": {[]Result{answers("a", "Created ns/a"), answers("b", "Recreated ns/b")}, "b: Recreated ns/b\na: Created ns/a"},
		"a result of the future":      {[]Result{answers("a", "Changed ns/a"), answers("b", "Quantum ns/a")}, "a: Changed ns/a\nb: Quantum ns/a"},
		"their own names": {[]Result{
			answers("rome", `Changed rome/a data.shop:>"rome" data.host:>"db.rome.example.com:rome"#rome is rome`),
			answers("bonn", `Changed bonn/a data.shop:>"bonn" data.host:>"db.bonn.example.com:bonn"#bonn is bonn`),
		}, `bonn rome: Changed {cluster}/a data.shop:>"{cluster}" data.host:>"db.{cluster}.example.com:{cluster}"#{cluster} is {cluster}`},
		"their own names in other names": {[]Result{answers("north-1", "Created ns/till-north-1"), answers("north-10", "Created ns/till-north-10")}, "north-1 north-10: Created ns/till-{cluster}"},
		"failures that name them": {[]Result{{Cluster: "rome", State: Failed, Message: "no rome"}, {Cluster: "bonn", State: Failed, Message: "no bonn"}},
			"bonn rome: Failed#no {cluster}"},
		"a name alone stays":        {[]Result{answers("rome", `Changed rome/a`)}, "rome: Changed rome/a"},
		"a part of another word":    {[]Result{answers("a", `Changed ns/a-b k:>"a1"`), answers("b", `Changed ns/a-b k:>"b1"`)}, "a: Changed ns/a-b k:>\"a1\"\nb: Changed ns/a-b k:>\"b1\""},
		"the name of another":       {[]Result{answers("a", `Changed ns/x k:>"b"`), answers("b", `Changed ns/x k:>"a"`)}, "a: Changed ns/x k:>\"b\"\nb: Changed ns/x k:>\"a\""},
		"a name that others share":  {[]Result{answers("shop", `Changed shop/x`), answers("b", `Changed shop/x`)}, "b shop: Changed shop/x"},
		"a name with a dot":         {[]Result{answers("a.b", `Changed ns/x k:>"a.b"`), answers("axb", `Changed ns/x k:>"a.b"`)}, "a.b axb: Changed ns/x k:>\"a.b\""},
		"few with their own values": {few, "c0: Changed ns/a data.k:\"1\">\"0\"\nc1: Changed ns/a data.k:\"1\">\"1\"\nc2: Changed ns/a data.k:\"1\">\"2\"\nc3: Changed ns/a data.k:\"1\">\"3\"\nc4: Changed ns/a data.k:\"1\">\"4\""},
		"many with their own values": {append(many, answers("d", `Changed d/a data.k:"1">"9"`)),
			`c0 c1 c2 c3 c4 c5 c6: Changed {cluster}/a data.k:(differs)>(differs) data.j:"x">"y" data.n:>"{cluster}" data.o:"{cluster}">` + "\n" + `d: Changed d/a data.k:"1">"9"`},
	} {
		before := fmt.Sprint(c.results)
		if got := describe(Groups(c.results)); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		if fmt.Sprint(c.results) != before {
			t.Errorf("%s: the results are changed", name)
		}
	}
}

// TestGroupsOfWarnings: names are not told apart in managers and warnings either, and the answers stay as they are.
func TestGroupsOfWarnings(t *testing.T) {
	var results []Result
	for _, cluster := range []string{"rome", "bonn"} {
		r := answers(cluster, "Conflict ns/a")
		r.Objects[0].Managers, r.Objects[0].Warnings = []string{cluster + " .data"}, []string{"not " + cluster}
		results = append(results, r)
	}
	groups := Groups(results)
	if len(groups) != 1 || groups[0].Objects[0].Managers[0] != "{cluster} .data" || groups[0].Objects[0].Warnings[0] != "not {cluster}" {
		t.Errorf("%+v", groups)
	}
	if o := results[0].Objects[0]; o.Managers[0] != "rome .data" || o.Warnings[0] != "not rome" {
		t.Errorf("%+v", o)
	}
}

func TestRecord(t *testing.T) {
	unknown := answers("f", "Unknown ns/a", "Unknown ns/b", "Unknown ns/c")
	unknown.Objects[1].Kind, unknown.Objects[1].Resource = "", "configmaps"
	p := &Plan{hash: "h", Results: []Result{
		{Cluster: "a", State: Away}, {Cluster: "b", State: NotAccepted}, {Cluster: "c", State: Failed}, {Cluster: "d", State: NotAsked},
		answers("e", "Created ns/a", "Changed ns/b", "Unchanged ns/c", "Kept ns/d", "ReadOnly ns/e"), unknown, answers("g", "Removed ns/a", "Recreated ns/b", "Removed ns/c"),
		answers("h", "Denied ns/a", "Refused ns/a", "Invalid ns/a", "Conflict ns/a"), answers("i", "Quantum ns/a"),
	}}
	for i := 4; i < len(p.Results); i++ {
		p.Results[i].asked = true
	}
	r := p.Record("ann", good)
	if got := fmt.Sprintf("%s %s %s: %d clusters, %d asked, %d answered, %d away, %d failed, %d refused, %d changed, %d deleted", r.Template, r.By, r.Time.UTC().Format("15:04"),
		r.Clusters, r.Asked, r.Answered, r.Away, r.Failed, r.Refused, r.Changed, r.Deleted); got !=
		"h ann 03:04: 8 clusters, 5 asked, 5 answered, 1 away, 1 failed, 2 refused, 2 changed, 3 deleted" {
		t.Error(got)
	}
	if n := count(unknown.Objects); n != (counts{changed: 2, deleted: 1}) {
		t.Errorf("%+v", n)
	}
}
