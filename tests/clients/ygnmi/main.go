// Command ygnmi configures a box as a program of ondatra does: by typed paths and structures that the generator of ygnmi makes
// from the YANG modules of the agent.
//
// `ygnmi CASE...` runs these cases, and without arguments all of them. Each case runs once in each form of a request (forms.go),
// and prints one line for it. The first difference ends the program with an error that shows it. The configuration of the last
// step stays on the box, so that the caller can compare the kernel with it.
//
// The address, certificate authority, user and password are in TARGET_ADDRESS, TARGET_CA, TARGET_USER and TARGET_PASSWORD. The
// box has the ports eth0 to eth3.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log"
	"os"
	"slices"
	"time"

	"github.com/openconfig/gnmi/proto/gnmi"
	"github.com/openconfig/ygnmi/ygnmi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// runLimit is the time for the cases of one run. The longest case takes 90 s in the lab on a machine that also builds.
const runLimit = 3 * time.Minute

// testCase is a sequence of configurations, which `run` sets one after the other in the form of the box.
type testCase struct {
	name string
	run  func(*box) error
}

var testCases = []testCase{
	{"attributes", attributes},
	{"addresses", addresses},
	{"deletes", deletes},
	{"vlans", vlans},
	{"bonds", bonds},
}

func main() {
	log.SetFlags(0)
	selected, err := selectCases(os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	ctx = metadata.AppendToOutgoingContext(ctx,
		"username", os.Getenv("TARGET_USER"), "password", os.Getenv("TARGET_PASSWORD"))
	client, err := connect()
	if err != nil {
		log.Fatal(err)
	}
	for _, testCase := range selected {
		for _, form := range forms {
			box := newBox(ctx, client, form)
			if err := box.clear(); err != nil {
				log.Fatalf("%s as %s: cannot clear the box: %v", testCase.name, form.name, err)
			}
			if err := testCase.run(box); err != nil {
				log.Fatalf("%s as %s: %v", testCase.name, form.name, err)
			}
			fmt.Printf("%s as %s: passed\n", testCase.name, form.name)
		}
	}
}

// selectCases returns the cases with these names, or all.
func selectCases(names []string) ([]testCase, error) {
	if len(names) == 0 {
		return testCases, nil
	}
	var selected []testCase
	for _, name := range names {
		at := slices.IndexFunc(testCases, func(it testCase) bool { return it.name == name })
		if at < 0 {
			return nil, fmt.Errorf("the case %q is unknown", name)
		}
		selected = append(selected, testCases[at])
	}
	return selected, nil
}

func connect() (*ygnmi.Client, error) {
	pem, err := os.ReadFile(os.Getenv("TARGET_CA"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("TARGET_CA holds no certificate")
	}
	secure := credentials.NewTLS(&tls.Config{RootCAs: roots})
	connection, err := grpc.NewClient(os.Getenv("TARGET_ADDRESS"), grpc.WithTransportCredentials(secure))
	if err != nil {
		return nil, err
	}
	return ygnmi.NewClient(gnmi.NewGNMIClient(connection))
}
