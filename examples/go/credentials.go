// What a member shows to the service, and whom it trusts: a token, and files for https.

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
)

// Credentials may all be empty. CA names the authorities to trust, in place of the system's; Certificate and Key belong
// together.
type Credentials struct{ Token, CA, Certificate, Key string }

// client is for one connection: it reads the files as they are now, so that one that was renewed counts for the next
// connection. Nothing is kept: a connection from before may be dead without a sign. Redirects of HTTP are not followed:
// the token goes to the nodes that were named.
func (c Credentials) client() (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if c.CA != "" {
		pem, err := os.ReadFile(c.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate", c.CA)
		}
	}
	if (c.Certificate == "") != (c.Key == "") {
		return nil, errors.New("the certificate and the key belong together")
	}
	if c.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.Certificate, c.Key)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true, TLSClientConfig: config},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}, nil
}

func (c Credentials) headers() http.Header {
	if c.Token == "" {
		return http.Header{}
	}
	return http.Header{"Authorization": {"Bearer " + c.Token}}
}
