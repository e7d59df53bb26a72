package dashboard

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"path"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	workv1 "github.com/workwire/workwire/pkg/apis/work/v1"
	workv1alpha1 "github.com/workwire/workwire/pkg/apis/work/v1alpha1"
	"github.com/workwire/workwire/pkg/hub/internal/works"
	"github.com/workwire/workwire/pkg/runtime/version"
	"github.com/workwire/workwire/pkg/workstate"
)

//go:embed assets templates
var files embed.FS

// errNotFound says that there is no such thing, or that the viewer may not see it.
var errNotFound = errors.New("not found")

// pages are the templates and the assets.
type pages struct {
	templates map[string]*template.Template
	version   string // of the assets
}

// newPages parses the templates: each page is one file beside layout.html.
func newPages() (*pages, error) {
	p := &pages{templates: map[string]*template.Template{}}
	hash := sha256.New()
	assets, err := files.ReadDir("assets")
	if err != nil {
		return nil, err
	}
	for _, asset := range assets {
		data, err := files.ReadFile("assets/" + asset.Name())
		if err != nil {
			return nil, err
		}
		hash.Write(data)
	}
	p.version = hex.EncodeToString(hash.Sum(nil))[:12]
	for _, name := range []string{"fleet", "works", "cluster", "work", "yaml", "sets", "set", "live", "login", "error", "rows"} {
		t, err := template.New("layout.html").Funcs(functions).ParseFS(files, "templates/layout.html", "templates/parts.html", "templates/"+name+".html")
		if err != nil {
			return nil, err
		}
		p.templates[name] = t
	}
	return p, nil
}

// functions are what templates call.
var functions = template.FuncMap{
	"label": label, "ago": ago, "short": short, "plural": plural, "noun": noun,
	"stamp":   func(t time.Time) string { return t.UTC().Format(time.RFC3339) },
	"clock":   func(t time.Time) string { return t.UTC().Format("15:04:05") },
	"percent": func(part, of int) string { return fmt.Sprintf("%.2f", 100*float64(part)/float64(max(of, 1))) },
	"less":    func(n int) int { return n - 1 },
	"args":    func(values ...any) []any { return values },
}

// ago returns the time between then and now in its largest unit, such as 5m.
func ago(now, then time.Time) string {
	d := now.Sub(then)
	switch {
	case then.IsZero():
		return ""
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	}
	return fmt.Sprintf("%dd", d/(24*time.Hour))
}

// short returns text of at most n characters.
func short(n int, text string) string {
	runes := []rune(text)
	if len(runes) <= n {
		return text
	}
	return strings.TrimSpace(string(runes[:n-1])) + "…"
}

// asset serves a file. The query of its URL has the version, so that browsers keep it.
func (p *pages) asset(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	data, err := files.ReadFile("assets/" + path.Base(name))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", cmp.Or(mime.TypeByExtension(path.Ext(name)), "text/plain; charset=utf-8"))
	if r.URL.Query().Get("v") == p.version {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(data)
}

// layout is what every page has.
type layout struct {
	Title   string // of the document, before the product's name
	Nav     string // the entry of the navigation that this page belongs to
	Viewer  string // "" for nobody
	Standby bool   // the replica stands by
	Notices []string
	URL     string // of this page
	Version uint64 // of the snapshot
	Follow  bool   // the page follows changes
	Feed    uint64 // the last change that the page has; only of the live page
	Now     time.Time
	Assets  string
	Program string // version of the hub
	View    any
}

// view is what a page shows.
type view struct {
	title, nav string
	data       any
	feed       uint64
	still      bool // the page shows one moment, and does not follow changes
}

// visit is a request of a viewer.
type visit struct {
	d        *Dashboard
	r        *http.Request
	viewer   viewer
	snapshot *snapshot
}

// sees returns whether the viewer may see works in a namespace. It asks about all clusters; with
// namespaces about these only.
func (v *visit) sees(namespaces ...string) (func(string) bool, error) {
	if namespaces == nil {
		for i := range v.snapshot.clusters {
			namespaces = append(namespaces, v.snapshot.clusters[i].Name)
		}
	}
	s, err := v.d.auth.scope(v.r.Context(), v.viewer, worksResource, namespaces)
	return s.sees, err
}

// page returns the handler of a page for viewers. Others get the login form.
func (d *Dashboard) page(name string, build func(*visit) (view, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := d.cfg.Now()
		who, err := d.auth.viewer(r.Context(), d.tokenOf(r, !refreshes(r)))
		if errors.Is(err, errUnauthenticated) {
			d.loginForm(w, r, http.StatusUnauthorized, "")
			return
		}
		if err != nil {
			d.failed(w, r, "", err)
			return
		}
		v := &visit{d: d, r: r, viewer: who, snapshot: d.fleet.snapshot()}
		built, err := build(v)
		if err != nil {
			d.failed(w, r, who.Name, err)
			return
		}
		d.render(w, http.StatusOK, name, layout{
			Title: built.title, Nav: built.nav, Viewer: who.Name, Standby: !d.cfg.Leading(), Notices: d.notices(r.Context()), URL: r.URL.RequestURI(),
			Version: v.snapshot.version, Follow: !built.still, Feed: built.feed, View: built.data,
		})
		d.metrics.pages.WithLabelValues(name).Observe(d.cfg.Now().Sub(begin).Seconds())
	})
}

// failed answers a request that cannot be served.
func (d *Dashboard) failed(w http.ResponseWriter, r *http.Request, viewer string, err error) {
	status, title, message := http.StatusServiceUnavailable, "The API server does not answer", "The hub could not ask who you are, or what you may see. Try again; the hub's log has the error."
	if errors.Is(err, errNotFound) {
		status, title, message = http.StatusNotFound, "Not found", "There is no such page, no such object, or you may not list objects of its namespace."
	} else if r.Context().Err() == nil {
		d.cfg.Logger.Warn("page of the dashboard failed", "path", r.URL.Path, "error", err)
	}
	d.render(w, status, "error", layout{Title: title, Viewer: viewer, View: message})
}

// render writes a page.
func (d *Dashboard) render(w http.ResponseWriter, status int, name string, l layout) {
	l.Now, l.Assets, l.Program = d.cfg.Now(), d.pages.version, version.Version
	var b bytes.Buffer
	if err := d.pages.templates[name].Execute(&b, l); err != nil {
		d.cfg.Logger.Error("page of the dashboard failed", "page", name, "error", err)
		http.Error(w, "the page cannot be shown; the hub's log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// notices returns what a viewer must know about the replica that they look at.
func (d *Dashboard) notices(ctx context.Context) []string {
	var notices []string
	if d.cfg.Leading() && !d.cfg.Connected() {
		notices = append(notices, "The hub has no connection to the broker: nothing is delivered, and statuses are those of before.")
	}
	if err := d.cfg.Current(ctx); err != nil {
		notices = append(notices, "This may be out of date: "+err.Error())
	}
	return notices
}

func (d *Dashboard) fleetPage(v *visit) (view, error) {
	sees, err := v.sees()
	return view{title: "Fleet", nav: "fleet", data: newFleetView(v.snapshot, sees, parseFilter(v.r.URL.Query(), clusterStates))}, err
}

func (d *Dashboard) worksPage(v *visit) (view, error) {
	sees, err := v.sees()
	return view{title: "Works", nav: "works", data: newWorksView(v.snapshot, sees, parseFilter(v.r.URL.Query(), workStates), "/works", "")}, err
}

func (d *Dashboard) clusterPage(v *visit) (view, error) {
	name := v.r.PathValue("cluster")
	sees, err := v.sees(name)
	if err != nil || !sees(name) {
		return view{}, cmp.Or(err, errNotFound)
	}
	c := clusterView{worksView: newWorksView(v.snapshot, sees, parseFilter(v.r.URL.Query(), workStates), "/clusters/"+name, name)}
	for i := range v.snapshot.clusters {
		if v.snapshot.clusters[i].Name == name {
			c.Row = v.snapshot.clusters[i]
		}
	}
	if c.Row.Name == "" {
		return view{}, errNotFound
	}
	c.Sets, c.MoreSets = setsOf(v.snapshot, name)
	if d.cfg.Clusters != nil {
		if cluster, ok := d.cfg.Clusters.Get(types.NamespacedName{Name: name}); ok {
			c.Conditions = newConditionViews(cluster.Status.Conditions, 0)
			for _, taint := range cluster.Spec.Taints {
				c.Taints = append(c.Taints, taint.Key+": "+string(taint.Effect))
			}
		}
	}
	return view{title: name, nav: "fleet", data: c}, nil
}

func (d *Dashboard) workPage(v *visit) (view, error) {
	work, err := v.work()
	if err != nil {
		return view{}, err
	}
	data := newWorkView(d.facts(work))
	data.Events = v.events(work)
	return view{title: work.Name, nav: "works", data: data}, nil
}

// work returns the work that the path names, with all of its content, if the viewer may see it.
func (v *visit) work() (*workv1.ManifestWork, error) {
	key := types.NamespacedName{Namespace: v.r.PathValue("cluster"), Name: v.r.PathValue("name")}
	sees, err := v.sees(key.Namespace)
	if err != nil || !sees(key.Namespace) {
		return nil, cmp.Or(err, errNotFound)
	}
	work, ok := v.d.cfg.Works.Get(key)
	if !ok {
		return nil, errNotFound
	}
	return works.Unpack(work), nil
}

// yamlView is the page of a work's YAML.
type yamlView struct{ Namespace, Name, YAML string }

func (d *Dashboard) yamlPage(v *visit) (view, error) {
	work, err := v.work()
	if err != nil {
		return view{}, err
	}
	text, err := yamlOf(work)
	return view{title: work.Name + " YAML", nav: "works", still: true, data: yamlView{Namespace: work.Namespace, Name: work.Name, YAML: text}}, err
}

// facts returns what the hub knows about a work.
func (d *Dashboard) facts(work *workv1.ManifestWork) workstate.Facts {
	facts := workstate.Facts{Now: d.cfg.Now(), Work: work}
	if d.cfg.Clusters != nil {
		cluster, ok := d.cfg.Clusters.Get(types.NamespacedName{Name: work.Namespace})
		facts.Cluster, facts.NoCluster = cluster, !ok
	}
	if of, ok := workv1alpha1.ParseWorkLabel(work.Labels[workv1.ReplicaSetLabelKey]); ok && d.cfg.ReplicaSets != nil {
		facts.Set, _ = d.cfg.ReplicaSets.Get(of)
	}
	return facts
}

// seesSets returns whether the viewer may see replica sets in a namespace.
func (v *visit) seesSets(namespaces ...string) (func(string) bool, error) {
	s, err := v.d.auth.scope(v.r.Context(), v.viewer, setsResource, namespaces)
	return s.sees, err
}

func (d *Dashboard) setsPage(v *visit) (view, error) {
	f := parseFilter(v.r.URL.Query(), setStates)
	if d.cfg.ReplicaSets == nil {
		return view{title: "Replica sets", nav: "sets", data: newSetsView(nil, nil, f)}, nil
	}
	sets := d.cfg.ReplicaSets.All()
	seen := map[string]bool{}
	var namespaces []string
	for _, set := range sets {
		if !seen[set.Namespace] {
			seen[set.Namespace] = true
			namespaces = append(namespaces, set.Namespace)
		}
	}
	sees, err := v.seesSets(namespaces...)
	return view{title: "Replica sets", nav: "sets", data: newSetsView(sets, sees, f)}, err
}

func (d *Dashboard) setPage(v *visit) (view, error) {
	key := types.NamespacedName{Namespace: v.r.PathValue("namespace"), Name: v.r.PathValue("name")}
	if d.cfg.ReplicaSets == nil {
		return view{}, errNotFound
	}
	seesSets, err := v.seesSets(key.Namespace)
	if err != nil || !seesSets(key.Namespace) {
		return view{}, cmp.Or(err, errNotFound)
	}
	set, ok := d.cfg.ReplicaSets.Get(key)
	if !ok {
		return view{}, errNotFound
	}
	sees, err := v.sees()
	works := d.cfg.Works.OfReplicaSet(workv1alpha1.WorkLabel(key))
	data := newSetView(set, works, sees, parseFilter(v.r.URL.Query(), workStates))
	data.Revisions, data.Events = v.revisions(set), v.events(set)
	return view{title: key.Name, nav: "sets", data: data}, err
}

func (d *Dashboard) livePage(v *visit) (view, error) {
	sees, err := v.sees()
	if err != nil {
		return view{}, err
	}
	changes, last := d.feed.since(0, sees)
	return view{title: "Live", nav: "live", data: changes, feed: last}, nil
}
