package plane

import (
	"strings"
	"testing"
)

func TestCheckDatastore(t *testing.T) {
	for endpoint, want := range map[string]string{
		"postgres://hub:s3cret@db.example:5432/hub?sslmode=verify-full":             "",
		"postgresql://hub@db.example/hub?sslmode=disable":                           "",
		"postgres:///hub?host=/run/postgresql&user=hub":                             "",
		"postgres:///hub?host=/run/a,/run/b&target_session_attrs=read-write":        "",
		"postgres://hub:s3%zzcret@db.example/hub":                                   "percent-encoded",
		"mysql://hub:s3cret@db.example/hub":                                         "must be postgres://",
		"hub:s3cret":                                                                "must be postgres://",
		"":                                                                          "must be postgres://",
		"postgres://hub:s3cret@db.example?sslmode=require":                          "must name a database",
		"postgres://hub:s3cret@db.example/Hub?sslmode=require":                      "must name a database",
		`postgres://hub:s3cret@db.example/a%22;DROP%20DATABASE%20b?sslmode=require`: "must name a database",
		"postgres://hub@db.example/hub?sslmode=require&password=s3cret":             "must have no parameter password",
		"postgres://hub@db.example/hub?sslmode=require&sslpassword=s3cret":          "must have no parameter password",
		"postgres://hub:s3cret@db.example/hub":                                      "must have a parameter sslmode",
		"postgres://hub:s3cret@db.example/hub?host=/run/postgresql":                 "must have a parameter sslmode",
		"postgres:///hub?host=/run/postgresql,db.example":                           "must have a parameter sslmode",
		"postgres://hub:s3cret@db.example/hub?sslmode=require;x":                    "parameters of the datastore endpoint",
	} {
		err := CheckDatastore(endpoint)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", endpoint, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: the error has the password: %v", endpoint, err)
		}
	}
}

func TestCheckSame(t *testing.T) {
	etcd, postgres := State{Role: Hub}, State{Role: Hub, Datastore: Postgres}
	for name, c := range map[string]struct {
		before, now State
		want        string
	}{
		"first run":          {State{}, postgres, ""},
		"etcd again":         {etcd, etcd, ""},
		"PostgreSQL again":   {postgres, postgres, ""},
		"etcd to PostgreSQL": {etcd, postgres, "is in etcd"},
		"PostgreSQL to etcd": {postgres, etcd, "--datastore-endpoint-file"},
	} {
		err := checkSame("/data", c.before, c.now)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func FuzzCheckDatastore(f *testing.F) {
	f.Add("postgres://hub:s3cret@db.example:5432/hub?sslmode=verify-full")
	f.Add("postgres:///hub?host=/run/postgresql")
	f.Add("postgres://%zz")
	f.Fuzz(func(t *testing.T, endpoint string) {
		err := CheckDatastore(endpoint)
		if err == nil && !strings.HasPrefix(strings.ToLower(endpoint), "postgres") {
			t.Errorf("accepted %q", endpoint)
		}
	})
}
