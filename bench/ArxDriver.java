/*
 * Runs ARX on a table of codes and their hierarchies, so that its searches can be measured beside ours.
 *
 *   java -cp libarx.jar bench/ArxDriver.java FOLDER K SUPPRESS ALGORITHM MILLISECONDS TIMES [distinct|closeness COLUMN VALUE]
 *
 * FOLDER holds table.csv and, for each quasi-identifier, NAME.hierarchy.csv, all separated by `;`. The measure is Loss
 * with the arithmetic mean. For each run one line of JSON: the levels, their loss, CPU and wall seconds of the search.
 */

import com.sun.management.OperatingSystemMXBean;
import java.io.File;
import java.lang.management.ManagementFactory;
import java.nio.charset.StandardCharsets;
import java.util.StringJoiner;
import org.deidentifier.arx.ARXAnonymizer;
import org.deidentifier.arx.ARXConfiguration;
import org.deidentifier.arx.ARXConfiguration.AnonymizationAlgorithm;
import org.deidentifier.arx.ARXLattice.ARXNode;
import org.deidentifier.arx.ARXResult;
import org.deidentifier.arx.AttributeType;
import org.deidentifier.arx.AttributeType.Hierarchy;
import org.deidentifier.arx.Data;
import org.deidentifier.arx.criteria.DistinctLDiversity;
import org.deidentifier.arx.criteria.EqualDistanceTCloseness;
import org.deidentifier.arx.criteria.KAnonymity;
import org.deidentifier.arx.metric.Metric;
import org.deidentifier.arx.metric.Metric.AggregateFunction;

public final class ArxDriver {

    private static final OperatingSystemMXBean PROCESS =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();

    public static void main(String[] arguments) throws Exception {
        File folder = new File(arguments[0]);
        String sensitive = arguments.length > 6 ? arguments[7] : null;
        Data data = Data.create(new File(folder, "table.csv"), StandardCharsets.UTF_8, ';');
        for (int column = 0; column < data.getHandle().getNumColumns(); column++) {
            define(data, folder, data.getHandle().getAttributeName(column), sensitive);
        }
        for (int run = 0; run < Integer.parseInt(arguments[5]); run++) {
            search(data, configuration(arguments));
            data.getHandle().release();
        }
    }

    private static void define(Data data, File folder, String name, String sensitive) throws Exception {
        if (name.equals(sensitive)) {
            data.getDefinition().setAttributeType(name, AttributeType.SENSITIVE_ATTRIBUTE);
            return;
        }
        File tree = new File(folder, name + ".hierarchy.csv");
        data.getDefinition().setAttributeType(name, Hierarchy.create(tree, StandardCharsets.UTF_8, ';'));
    }

    private static ARXConfiguration configuration(String[] arguments) {
        ARXConfiguration asked = ARXConfiguration.create();
        asked.addPrivacyModel(new KAnonymity(Integer.parseInt(arguments[1])));
        if (arguments.length > 6 && arguments[6].equals("distinct")) {
            asked.addPrivacyModel(new DistinctLDiversity(arguments[7], Integer.parseInt(arguments[8])));
        } else if (arguments.length > 6) {
            asked.addPrivacyModel(new EqualDistanceTCloseness(arguments[7], Double.parseDouble(arguments[8])));
        }
        asked.setSuppressionLimit(Double.parseDouble(arguments[2]));
        asked.setQualityModel(Metric.createLossMetric(AggregateFunction.ARITHMETIC_MEAN));
        asked.setAlgorithm(AnonymizationAlgorithm.valueOf(arguments[3]));
        asked.setHeuristicSearchTimeLimit(Integer.parseInt(arguments[4]));
        asked.setHeuristicSearchThreshold(Integer.MAX_VALUE);
        return asked;
    }

    private static void search(Data data, ARXConfiguration asked) throws Exception {
        long cpu = PROCESS.getProcessCpuTime();
        long wall = System.nanoTime();
        ARXResult result = new ARXAnonymizer().anonymize(data, asked);
        double spent = (PROCESS.getProcessCpuTime() - cpu) / 1e9;
        double passed = (System.nanoTime() - wall) / 1e9;
        ARXNode best = result.getGlobalOptimum();
        if (best == null) {
            System.out.printf("{\"levels\": null, \"cpu\": %.3f, \"wall\": %.3f}%n", spent, passed);
            return;
        }
        StringJoiner levels = new StringJoiner(", ", "{", "}");
        for (String name : best.getQuasiIdentifyingAttributes()) {
            levels.add("\"" + name + "\": " + best.getGeneralization(name));
        }
        System.out.printf("{\"levels\": %s, \"loss\": %s, \"cpu\": %.3f, \"wall\": %.3f}%n",
                          levels, best.getHighestScore(), spent, passed);
    }
}
