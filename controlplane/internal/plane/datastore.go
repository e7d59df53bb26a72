package plane

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
)

// Postgres is the value of [State.Datastore] of a control plane whose data is in PostgreSQL.
const Postgres = "postgres"

// databaseName is what kine and PostgreSQL understand alike without quotes.
var databaseName = regexp.MustCompile(`^/[a-z0-9_][a-z0-9_-]{0,62}$`)

// CheckDatastore returns an error if endpoint is not the URL of a PostgreSQL database. The error does
// not have the URL, which may have a password.
func CheckDatastore(endpoint string) error {
	u, err := url.Parse(endpoint)
	if err != nil {
		// The cause has a part of the URL.
		return errors.New("the datastore endpoint is not a URL: special characters of the password must be percent-encoded")
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return errors.New("the datastore endpoint must be postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=verify-full")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return errors.New("the parameters of the datastore endpoint are not those of a URL")
	}
	var errs []error
	if !databaseName.MatchString(u.Path) {
		errs = append(errs, errors.New("the datastore endpoint must name a database, of lower-case letters, digits, _ and -"))
	}
	if query.Has("password") || query.Has("sslpassword") {
		errs = append(errs, errors.New("the datastore endpoint must have no parameter password or sslpassword: a password stands before the @"))
	}
	if !query.Has("sslmode") && !onSocket(u, query) {
		errs = append(errs, errors.New("the datastore endpoint must have a parameter sslmode: verify-full, or disable for a connection without encryption"))
	}
	return errors.Join(errs...)
}

// onSocket reports whether all hosts of a URL are directories of sockets.
func onSocket(u *url.URL, query url.Values) bool {
	hosts := query.Get("host")
	if hosts == "" {
		return false
	}
	for host := range strings.SplitSeq(hosts, ",") {
		if !strings.HasPrefix(host, "/") {
			return false
		}
	}
	return u.Host == ""
}

// checkSame returns an error if the data of an earlier run in dir is in another kind of datastore.
func checkSame(dir string, before, now State) error {
	switch {
	case before.Role == "" || before.Datastore == now.Datastore:
		return nil
	case before.Datastore == Postgres:
		return fmt.Errorf("the data of the control plane in --dir=%s is in PostgreSQL; give its URL with --datastore-endpoint-file", dir)
	}
	return fmt.Errorf("the data of the control plane in --dir=%s is in etcd; leave out the datastore endpoint, or give another directory", dir)
}

// CheckOwnData returns an error if the data of the control plane in dir is not in its etcd, or none has
// been started there.
func CheckOwnData(dir string) error {
	state, err := ReadState(dir)
	if err != nil || state.Datastore == "" {
		return err
	}
	return fmt.Errorf("the data of the control plane in %s is in PostgreSQL: back it up with pg_dump and restore it with pg_restore, "+
		`see "A hub in PostgreSQL" in docs/operations.md`, dir)
}
