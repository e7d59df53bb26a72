package certificates

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/workwire/workwire/test/kit"
)

const example = `
authority: {directory: ca, name: example, validity: 8760h}
validity: 1000h
certificates:
- {name: broker, role: broker, hosts: [broker.example.com, 127.0.0.1, "::1"]}
- {name: hub1, role: source, commonName: source.hub1}
- {name: cluster1, role: agent, directory: agents/1, validity: 24h}
`

func TestParse(t *testing.T) {
	got, err := Parse([]byte(example))
	kit.NoError(t, err)
	hours := func(n time.Duration) metav1.Duration { return metav1.Duration{Duration: n * time.Hour} }
	want := Config{
		Authority: Authority{Directory: "ca", Name: "example", Validity: hours(8760)}, Validity: hours(1000),
		Certificates: []Certificate{
			{Name: "broker", CommonName: "broker", Role: Broker, Hosts: []string{"broker.example.com", "127.0.0.1", "::1"}, Directory: "broker", Validity: hours(1000)},
			{Name: "hub1", CommonName: "source.hub1", Role: Source, Directory: "hub1", Validity: hours(1000)},
			{Name: "cluster1", CommonName: "cluster1", Role: Agent, Directory: "agents/1", Validity: hours(24)},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	got, err = Parse([]byte("certificates: [{name: a, role: agent}]"))
	kit.NoError(t, err)
	if got.Authority.Directory != "authority" || got.Authority.Name != "workwire" || got.Authority.Validity != hours(87600) || got.Certificates[0].Validity != hours(2160) {
		t.Errorf("defaults are %+v", got)
	}
}

func TestFaults(t *testing.T) {
	for name, test := range map[string]struct{ text, want string }{
		"nothing":          {"", "certificates: at least one is required"},
		"no YAML":          {"certificates: [", "decode YAML"},
		"unknown key":      {"certificates: [{name: a, role: agent, host: b}]", `unknown field "host"`},
		"a key twice":      {"validity: 1h\nvalidity: 2h", "already set"},
		"no duration":      {"validity: 90 days", "in duration"},
		"name":             {"certificates: [{name: Cluster_1, role: agent}]", `name "Cluster_1" must consist of`},
		"no name":          {"certificates: [{role: agent}]", `name "" must consist of`},
		"twice":            {"certificates: [{name: a, role: agent}, {name: a, role: source}]", `name "a" is listed twice`},
		"one directory":    {"certificates: [{name: a, role: agent}, {name: b, role: agent, directory: ./a}]", "directory ./a is used by a"},
		"authority's":      {"certificates: [{name: authority, role: agent}]", "directory authority is used by the authority"},
		"role":             {"certificates: [{name: a, role: hub}]", `role "hub" is unknown`},
		"no hosts":         {"certificates: [{name: a, role: broker}]", "hosts: at least one is required"},
		"hosts of clients": {"certificates: [{name: a, role: agent, hosts: [b]}]", "must be empty for the certificate of a client"},
		"host with port":   {`certificates: [{name: a, role: server, hosts: ["b:8883"]}]`, "remove a port"},
		"negative":         {"certificates: [{name: a, role: agent, validity: -1h}]", "is too short"},
		"outlives":         {"authority: {validity: 1h}\ncertificates: [{name: a, role: agent}]", "longer than the authority's 1h"},
		"common name":      {`certificates: [{name: a, role: agent, commonName: "a b"}]`, "without spaces"},
	} {
		if _, err := Parse([]byte(test.text)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(example))
	f.Add([]byte("certificates: [{name: a, role: server, hosts: ['*.b']}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse(data)
		if err != nil {
			return
		}
		for _, cert := range c.Certificates {
			if cert.Directory == "" || cert.CommonName == "" || cert.Validity.Duration < time.Second {
				t.Errorf("accepted %+v", cert)
			}
		}
	})
}
