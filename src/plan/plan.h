/* `regulon plan`: what a run would need, before there is a machine for it. */
#ifndef REGULON_PLAN_PLAN_H
#define REGULON_PLAN_PLAN_H

int plan_main(int argc, char **argv);
#endif
